"""Scheduled loops to flat loops over vectors."""
