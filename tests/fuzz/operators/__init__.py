"""Every operator that graphs are drawn from."""

from tests.fuzz.operators import (
    blocks,
    control,
    convolution,
    indexing,
    narrow,
    pointwise,
    pooling,
    quantized,
    recurrent,
    rows,
    run_time,
    shapes,
    trees,
)

__all__ = [
    "blocks",
    "control",
    "convolution",
    "indexing",
    "narrow",
    "pointwise",
    "pooling",
    "quantized",
    "recurrent",
    "rows",
    "run_time",
    "shapes",
    "trees",
]
