"""Dims, their names, axis expressions over them, grids of their values, and tensors' shapes."""
