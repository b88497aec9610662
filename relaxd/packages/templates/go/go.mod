module models.local/@short@

go 1.18
