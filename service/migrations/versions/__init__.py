"""Alembic migrations of the job database."""
