"""Tiling of a grouped or volumetric convolution: blocks of channels, panels, positions.

`python -m benchmarks.kernels --constant grouped_conv` measures the constants again.
"""

from dataclasses import dataclass

from compiler.passes.cpu.shared.register_tile import rows_for
from compiler.passes.cpu.shared.windowed import PanelConv
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import bits_of, dtype_of, require_int

MOST_POSITIONS = 8
"""The most positions of a register tile: each needs an address of its own, and x86-64 has 16
general registers.
"""

SHARE_COLUMNS = 256
"""Output channels of a task, about: a kilobyte of accumulators for each position."""

TASK_TILES = 2
"""Register tiles of positions of a task."""

HEAVY_TILES = 8
"""The same where weights fill more than half of L2, so that the next task evicts them: a task has
more positions for each time that they are read.
"""

UNROLL = 16
"""The largest number of channels of a block whose loop is unrolled; with more of them its counter
costs little beside the tile.
"""


@dataclass(frozen=True)
class Tiling:
    """The extents of a convolution's weights, and the sizes that follow.

    Output channels come in `blocks` that read the same input channels, a block in `panels` of
    `width`; `depth` is the window times the input channels of a block.
    """

    blocks: int
    panels: int
    depth: int
    width: int
    columns: int
    channels: int
    height: int
    positions: int

    @property
    def total(self) -> int:
        """Panels of all blocks."""
        return self.blocks * self.panels

    @property
    def share(self) -> int:
        """Panels of a task: whole blocks, so that their results stay in the cache."""
        blocks = max(SHARE_COLUMNS // (self.panels * self.width), 1)
        return min(blocks, self.blocks) * self.panels


def tiling_for(conv: PanelConv, unit: VectorUnit) -> Tiling:
    """The tiling of a convolution on a processor."""
    blocks, panels, depth, width = conv.packed
    # As many accumulators as hide the latency of a fused multiply-add.
    height = min(rows_for(unit, max(width // unit.lanes(32), 1)), MOST_POSITIONS)
    size = bits_of(dtype_of(conv.weights)) // 8 * depth * width * blocks * panels
    heavy = size > unit.l2 // 2
    return Tiling(
        blocks=blocks,
        panels=panels,
        depth=depth,
        width=width,
        columns=require_int(conv.column.extent) // blocks,
        channels=require_int(conv.along.extent),
        height=height,
        positions=height * (HEAVY_TILES if heavy else TASK_TILES),
    )


def describe_tile(conv: PanelConv, unit: VectorUnit) -> str:
    """The register tile, and the positions of a task."""
    tiling = tiling_for(conv, unit)
    return f"{tiling.height}x{tiling.width}, {tiling.positions} positions a task"
