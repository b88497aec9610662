"""Measures how often the latency gate of `relaxd diff` is wrong beside busy neighbours."""
