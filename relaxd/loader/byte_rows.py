"""Rows of caches in bytes (`relaxd.contract.bundle.byte_rows`) as numpy's arrays."""

import warnings
from typing import Any

import numpy as np

from relaxd.contract.bundle.byte_rows import LEAST, MOST, SCALE_BYTES


def quantize_rows(rows: np.ndarray) -> np.ndarray:
    """int8 [.., size + SCALE_BYTES] of float32 rows [.., size], as a library stores them."""
    rows = np.asarray(rows, np.float32)
    greatest = np.abs(rows).max(axis=-1, keepdims=True, initial=0)
    known = np.isfinite(greatest)
    quantizable = known & (greatest >= np.float32(LEAST))
    factor = np.float32(MOST) / np.where(quantizable, greatest, np.float32(MOST))
    stored = np.empty((*rows.shape[:-1], rows.shape[-1] + SCALE_BYTES), np.int8)
    stored[..., :-SCALE_BYTES] = np.rint(np.where(quantizable, rows, np.float32(0)) * factor)
    scale = np.where(quantizable, greatest, np.float32(0)) / np.float32(MOST)
    scale = np.where(known, scale, np.float32(np.nan)).astype("<f4")
    stored[..., -SCALE_BYTES:] = scale.view(np.int8)
    return stored


def dequantize_rows(rows: np.ndarray) -> np.ndarray:
    """float32 [.., size] of int8 rows [.., size + SCALE_BYTES]."""
    scale = np.ascontiguousarray(rows[..., -SCALE_BYTES:]).view("<f4")
    # The greatest float32 comes back as infinity where its scale was rounded up.
    with np.errstate(over="ignore", invalid="ignore"):
        real: np.ndarray = rows[..., :-SCALE_BYTES].astype(np.float32) * scale
    return real


_RENAMED = {"rounded": "quantize_rows", "widened": "dequantize_rows"}


def __getattr__(name: str) -> Any:
    """Give the functions by their names of before 0.2, with a warning."""
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} is {_RENAMED[name]} now", DeprecationWarning, stacklevel=2)
    return globals()[_RENAMED[name]]
