"""Products with constant weights laid out in panels."""
