"""Passes that lower Relax operators and checks to tensor programs."""
