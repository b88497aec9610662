"""Tensor programs to loops for processors."""
