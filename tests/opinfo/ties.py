"""Operators of which torch promises no index among equal elements, and whose indices are judged by
the elements that they choose.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tests.opinfo.entries import Entry, Sample

_AXES = {"topk": 2}
"""By operator, which argument is the axis; the results are values and indices."""


def choose_alike(
    entry: Entry,
    sample: Sample,
    tensors: Sequence[torch.Tensor],
    outputs: Sequence[np.ndarray[Any, Any]],
    wanted: Sequence[torch.Tensor],
) -> bool:
    """True where the values are torch's and every index is that of an element with its value, no
    index given twice.
    """
    if entry.name not in _AXES:
        return False
    (values, indices), (x, *_) = outputs, tensors
    positional, named = sample.arguments
    position = _AXES[entry.name]
    axis = positional[position] if len(positional) > position else named.get("dim", -1)
    if not np.array_equal(values, wanted[0].numpy(), equal_nan=True) or not x.dim():
        return False
    if indices.dtype != np.int64 or indices.shape != values.shape:
        return False
    order = np.sort(indices, axis)
    if (
        np.any(order < 0)
        or np.any(order >= x.shape[axis])
        or np.any(np.diff(order, axis=axis) == 0)
    ):
        return False
    chosen = np.take_along_axis(x.numpy(), indices, axis)
    return np.array_equal(chosen, values, equal_nan=True)
