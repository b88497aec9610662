"""Extents and dims: their arithmetic, what is known about them, and which run-time integers are
legal.
"""
