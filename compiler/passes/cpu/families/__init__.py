"""Kernel families: each turns one form of tensor program into loops for a vector unit."""
