"""Matmuls by block-wise quantized weights of 4 and 8 bits, and by weights of float16."""
