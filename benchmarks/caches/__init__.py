"""Lifted caches in each form that they are stored in."""
