"""Operators on values, shared by the front ends: each deduces its symbolic shape and folds what is
known.
"""
