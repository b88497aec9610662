"""Errors of kernels and of models against float64, beside those of other engines."""
