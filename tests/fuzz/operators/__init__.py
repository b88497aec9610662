"""Every operator that graphs are drawn from."""

from tests.fuzz.operators import (
    blocks,
    control,
    convolution,
    pointwise,
    pooling,
    quantized,
    recurrent,
    rows,
    shapes,
)

__all__ = [
    "blocks",
    "control",
    "convolution",
    "pointwise",
    "pooling",
    "quantized",
    "recurrent",
    "rows",
    "shapes",
]
