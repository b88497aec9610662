"""Convolutions with one output channel over padded images."""
