"""Tiling of a convolution with one output channel: positions of a tile, vectors of a run.

`python -m benchmarks.kernels --constant single_conv` measures the constants again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.passes.cpu.shared.register_tile import narrowest
from compiler.passes.cpu.shared.windowed import PanelConv
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import steps
from compiler.tir.exprs import Expr, const, require_int

MOST_POSITIONS = 16
"""The most positions of a tile. Each vector of weights is loaded once for all of them: with eight a
window of 5x5x8 took 1.3 times as long on Zen 4.
"""

UNROLL = 4
"""Unrolled vectors of a run. With six LLVM keeps those that neighbouring positions share, for which
there are too few registers: 1.2 times as long.
"""

STRIP = 256
"""The most positions of a task, so that an image of one row has several tasks."""


@dataclass(frozen=True)
class Tiling:
    """A tile is `positions` neighbouring results, each a vector of `lanes` partial sums along runs
    of `run` elements.
    """

    positions: int
    lanes: int
    run: int

    def vectors(self) -> Iterator[tuple[Expr, int]]:
        """(first, skipped) of each vector of a run: its first element, and how many of its first
        lanes are masked. The last vector ends with the run and masks those of the one before it.
        """
        full, rest = divmod(self.run, self.lanes)
        for vector in steps(const(full), min(full, UNROLL), full, "vector"):
            yield vector * self.lanes, 0
        if rest:
            yield const(self.run - self.lanes), self.lanes - rest


def tiling_for(conv: PanelConv, unit: VectorUnit) -> Tiling:
    """The tiling of a convolution on a processor."""
    # Windows are not aligned, so most vectors of 512 bits would be in two cache lines.
    lanes = narrowest(unit)
    # The other half of the registers is for weights and elements of the image.
    positions = max(min(MOST_POSITIONS, unit.registers // 2), lanes)
    return Tiling(positions, lanes, require_int(conv.along.extent))


def describe_tile(conv: PanelConv, unit: VectorUnit) -> str:
    """The positions of a tile, and the lanes of each."""
    tiling = tiling_for(conv, unit)
    return f"{tiling.positions} positions by {tiling.lanes} lanes"
