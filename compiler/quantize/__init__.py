"""Quantization of a build: its weights and operands, their scales, and their cost in accuracy."""
