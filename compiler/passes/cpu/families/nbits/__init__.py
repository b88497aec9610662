"""Matmuls by constant matrices of 4- and 8-bit numbers in blocks with a scale, and of float16."""
