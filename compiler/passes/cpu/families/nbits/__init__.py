"""Matmuls by constant matrices of 4- and 8-bit numbers with a scale for each block."""
