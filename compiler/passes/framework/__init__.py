"""Passes, and what can be seen of a pipeline while it runs."""
