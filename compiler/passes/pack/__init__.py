"""Passes that lay out constant weights for the CPU's kernels."""
