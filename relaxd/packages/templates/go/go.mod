module relaxd.local/@short@

go 1.18
