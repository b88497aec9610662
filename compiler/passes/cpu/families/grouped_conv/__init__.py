"""Grouped and volumetric convolutions over padded images."""
