"""Caches that the caller of a library owns, as an import meets them."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.values import Tensor

AXIS = 2
"""The axis of a cache's rows: [entries, heads, rows, size]."""


@dataclass
class Buffer:
    """A cache with room for `capacity` rows. held: all of it, which may be in fewer bits than
    `dtype`, the model's; present: its rows with the new ones as the model reads them, None until a
    node has written them.
    """

    name: str
    held: Tensor
    dtype: str
    present: Tensor | None = None
