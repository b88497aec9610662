"""Caches that the caller of a library owns, as an import meets them."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.values import Tensor

AXIS = 2
"""The axis of a cache's rows: [entries, heads, rows, size]."""


@dataclass
class Buffer:
    """A cache with room for `capacity` rows. held: all of it; present: the view of its rows with
    the new ones, None until a node has written them.
    """

    name: str
    held: Tensor
    present: Tensor | None = None
