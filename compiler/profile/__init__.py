"""Measures a new library."""
