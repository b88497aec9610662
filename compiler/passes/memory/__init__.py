"""Passes around the memory plan."""
