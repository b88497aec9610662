"""Operators that compute each element by itself, and broadcasting."""
