"""Measures which layers lose most by narrow operands, and keeps those in float32."""

SCALES = "scales.arrays"
"""The file by which the search gets the scales of channels, in its folder."""
