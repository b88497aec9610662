"""Operators that move, read, write, order and choose elements."""
