"""Exact products of small integers."""
