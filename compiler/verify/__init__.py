"""Runs a new library against a reference at several points of its dims."""
