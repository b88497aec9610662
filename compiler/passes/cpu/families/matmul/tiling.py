"""Tiling of a matmul: the register tile, the rows and columns of a task, the depth of a pass.

The sizes follow Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008: a
register tile of accumulators, a panel of the right side for L1, a block of the left side for L2.
"""

from dataclasses import dataclass

from compiler.passes.cpu.shared.register_tile import rows_for
from compiler.targets.vector_unit import VectorUnit


@dataclass(frozen=True)
class Tiling:
    """The register tile is mr rows by nr columns; a task has at most `tiles` of them in rows by
    `panels` in columns; a pass covers kc of the depth.
    """

    mr: int
    nr: int
    tiles: int
    panels: int
    kc: int

    @property
    def block_rows(self) -> int:
        """Rows of a task."""
        return self.mr * self.tiles


DEEPEST_GATHERED = 2048
"""The greatest depth of a pass over gathered rows, whose blocks fit into L2 at any depth."""

DEEPEST_IMAGE = 1024
"""The same of images that are read in place, where kernels are memory-bound: MobileNetV2 and V4
took 0.99 of the time, ResNet-50 and matmuls of rows the same time as with L1's share.
"""


def tiling_for(
    unit: VectorUnit, width: int, depth: int, run: int | None = None, bulk: bool = False
) -> Tiling:
    """A tiling for panels of `width` columns whose block of rows stays in L2.

    run: rows are gathered in contiguous runs of this length, and passes are multiples of it; None
    where rows are read in place. bulk: rows are those of images.
    """
    mr, nr = rows_for(unit, width // unit.lanes(32)), width
    # Where rows are read in place, one pass by one panel takes up to five eighths of L1: the rest
    # is for the rows and the results. Against half of L1 that gained 0.8 % on MiniLM; passes of 96,
    # 256 and 384 were not faster. Beside wide panels rows are fewer, and three quarters gained up
    # to 10 % where there is one panel.
    share = unit.l1 * (6 if unit.memory_bound else 5) // 8
    deepest = DEEPEST_GATHERED if run else share // (4 * nr)
    if bulk and unit.memory_bound and not run:
        deepest = max(deepest, DEEPEST_IMAGE)
    passes = max(-(-depth // deepest), 1)
    # All passes are about equally deep, in whole runs or in whole steps of the innermost loop.
    multiple = run or unit.unroll
    kc = -(-depth // multiple // passes) * multiple
    # Half of L2 holds the rows of a block; the other half is left to weights and results. Blocks
    # of 48 or 128 rows were no faster on Zen 3.
    rows_in_l2 = unit.l2 // 2 // (4 * kc)
    tiles = min(max(rows_in_l2 // mr, 2), 8 if run else 16)
    # A gathered block serves up to 8 panels, as the copy is done for each task. Of rows in place,
    # tasks of two panels gained 0.5 % over larger ones; but rows that over the whole depth fill
    # more than half of L2 come from memory for each group of panels, so there the groups are four.
    in_l2 = 4 * mr * tiles * depth <= unit.l2 // 2
    panels = 8 if run else 2 if in_l2 else 4
    return Tiling(mr, nr, tiles, panels, kc)
