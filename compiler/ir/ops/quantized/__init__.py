"""Operators on quantized values: scales and zero points, int8 matmuls, block-wise quantized
weights, 8-bit floats.
"""
