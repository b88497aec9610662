"""Caches that the caller of a library owns, as an import meets them."""

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.ir.graph.values import Tensor
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from relaxd.contract.bundle.byte_rows import SCALE_BYTES

AXIS = 2
"""The axis of a cache's rows: [entries, heads, rows, size]."""


@dataclass
class Buffer:
    """A cache with room for `capacity` rows. storage: all of it, which may be in fewer bits than
    `dtype`, the model's; present: its rows with the new ones as the model reads them, None until a
    node has written them. bytes: rows are bytes with a scale behind them
    (`relaxd.contract.bundle.byte_rows`), so that they are longer than the model's.
    """

    name: str
    storage: Tensor
    dtype: str
    present: Tensor | None = None
    bytes: bool = False

    def storage_shape(self, shape: Sequence[Extent]) -> list[Extent]:
        """The shape that stores rows [.., size] of the model."""
        *outer, size = shape
        return [*outer, ex.add(size, SCALE_BYTES) if self.bytes else size]
