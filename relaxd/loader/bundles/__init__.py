"""A bundle's files: archives, layouts, weights, libraries, reports."""
