"""Passes over Relax graphs that every processor shares, and what they match with."""
