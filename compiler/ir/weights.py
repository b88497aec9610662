"""Weights of a model's file, known by their contents, so that they are found again behind
constant folding; and how some of them are rounded.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from relaxd.contract.bundle.weights import StoredWeights
from relaxd.contract.options import WeightForm

LEAST = 1 << 14
"""Smaller weights are not worth their error."""
_AT_ONCE = 1 << 24
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class FileWeight:
    """A constant of the model's file of at least LEAST reals: its names there and its shape."""

    names: tuple[str, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class WeightQuantization:
    """form: what a matrix is quantized to; axis: along which its numbers share a scale, as the file
    has it; values: a file of NumPy's with the dequantized matrix, None where each number goes to
    the nearest; nearest: why, where the weight was to be calibrated.
    """

    form: WeightForm
    axis: int
    values: Path | None = None
    nearest: str | None = None


@dataclass(frozen=True)
class QuantizedWeights:
    """A model's weights after quantization; roundings: of the file's, by digest."""

    stored: StoredWeights
    roundings: Mapping[bytes, WeightQuantization] = field(default_factory=dict)


def digest_of(array: Array) -> bytes:
    """Hash the shape and the values as float32, row by row, however they lie in memory."""
    hashed = hashlib.sha256(str(array.shape).encode())
    step = max(_AT_ONCE // max(array[:1].size * 4, 1), 1)
    for first in range(0, len(array), step):
        hashed.update(array[first : first + step].astype(np.float32).tobytes())
    return hashed.digest()
