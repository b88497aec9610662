"""Relax and tensor-program passes for targets whose kernels run on a grid of threads."""
