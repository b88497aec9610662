"""Matmuls and convolutions by constant weights laid out in panels."""
