"""Matmuls of two tensors that are both computed at run time."""
