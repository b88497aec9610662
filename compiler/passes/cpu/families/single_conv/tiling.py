"""How a convolution with one output channel is cut up: places of a tile, vectors of a run."""

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.passes.cpu.shared.register_tile import narrowest
from compiler.passes.cpu.shared.windowed import PanelConv
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import steps
from compiler.tir.exprs import Expr, const, require_int

MOST_PLACES = 16
"""Places of a tile at most. Each vector of weights serves them all: with eight a window of 5x5x8
took 1.3 times as long on Zen 4.
"""

TOGETHER = 4
"""Vectors of a run between two looks at its end. Of six in a row LLVM keeps those that neighbouring
places read both, for which registers are too few: 1.2 times as long.
"""


@dataclass(frozen=True)
class Tiling:
    """`places` neighbouring results are computed together, a vector of `lanes` partial sums each,
    along runs of `run` elements.
    """

    places: int
    lanes: int
    run: int

    def vectors(self) -> Iterator[tuple[Expr, int]]:
        """(first, skipped) for each vector of a run: its first element, and how many of its lanes
        do not count. The last vector ends with the run and skips what the one before it had.
        """
        full, rest = divmod(self.run, self.lanes)
        for vector in steps(const(full), min(full, TOGETHER), full, "vector"):
            yield vector * self.lanes, 0
        if rest:
            yield const(self.run - self.lanes), self.lanes - rest


def tiling_for(conv: PanelConv, unit: VectorUnit) -> Tiling:
    """The tiling of a convolution on a processor."""
    # Windows begin anywhere, so most whole vectors of 512 bits would lie in two cache lines.
    lanes = narrowest(unit)
    # The other half of the registers is for weights, and for what is read of the image.
    places = max(min(MOST_PLACES, unit.registers // 2), lanes)
    return Tiling(places, lanes, require_int(conv.along.extent))


def describe_tile(conv: PanelConv, unit: VectorUnit) -> str:
    """The places of a tile, and the lanes of each."""
    tiling = tiling_for(conv, unit)
    return f"{tiling.places} places by {tiling.lanes} lanes"
