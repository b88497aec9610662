"""Exact matmuls and convolutions of int8."""
