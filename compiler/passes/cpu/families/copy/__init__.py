"""Reshapes that need a copy of their input."""
