"""Flat loops to functions of a library's interface."""
