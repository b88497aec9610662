"""Passes that compute less: fold, move, combine or drop operators."""
