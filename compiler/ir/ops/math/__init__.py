"""Reductions, matmuls, transforms and random numbers."""
