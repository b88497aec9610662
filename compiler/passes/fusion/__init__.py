"""Passes that decide which operators become one kernel."""
