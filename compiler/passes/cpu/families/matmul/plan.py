"""Tiling of a matmul: the register tile, the rows and columns of a task, the depth of a pass.

The sizes follow Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008: a
register tile of accumulators, a panel of the right side for L1, a block of the left side for L2.

`python -m benchmarks.kernels --constant matmul` measures the constants again.
"""

from dataclasses import dataclass

from compiler.passes.cpu.shared.register_tile import rows_for
from compiler.targets.vector_unit import VectorUnit

LEAST_SAVED = 1 / 16
"""The last panel has code of its own if that saves this part of all columns."""

FEW_TILES = 4
"""Up to this many tiles of rows, weights are hardly reused and are read fastest in one stream, with
the whole depth in one pass. Where the next panel is prefetched between the steps, it is one tile.
"""

PREFETCH_FEW = 2
"""Tiles that together prefetch the next panel, where there are no more than FEW_TILES."""

PREFETCH_MANY = 6
"""Tiles that together prefetch the next panel elsewhere: two lines between groups of steps.
With 16 tiles and one line, 48 rows took 15 % longer on Sapphire Rapids.
"""

PREFETCHED_DEPTH = 32
"""Depth up to which lines of the outputs are prefetched: 16 channels to 96 at 112x112 took 0.8 of
the time; from 64 channels on it cost 1 to 5 %.
"""

SHALLOW = 128
"""Depth up to which a tile of a convolution stores its outputs itself: at 16 channels that took
0.67 of the time, at 40 to 128 0.81 to 0.95. At greater depths it was not faster.
"""

LEAST_TASKS = 8
"""The least number of tasks of an image with as many tiles: with five, one of two threads has
three.
"""

LEAST_GROUPS = 4
"""The least number of groups of panels where few rows are divided by their columns."""

LEAST_TILES = 4
"""The least tiles of a bfloat16 block, where rows are cut into more blocks than L2 requires: 49
rows by 512 columns in blocks of two tiles took 3 % longer on one thread.
"""

DEEPEST_GATHERED = 2048
"""The greatest depth of a pass over gathered rows, whose blocks fit into L2 at any depth."""

DEEPEST_IMAGE = 1024
"""The same of images that are read in place, where kernels are memory-bound: MobileNetV2 and V4
took 0.99 of the time, ResNet-50 and matmuls of rows the same time as with L1's share.
"""

L1_EIGHTHS = 5
"""Eighths of L1 that one pass by one panel takes where rows are read in place: the rest is for the
rows and the results. Against half of L1 that gained 0.8 % on MiniLM; passes of 96, 256 and 384 were
not faster.
"""

L1_EIGHTHS_WIDE = 6
"""The same beside the wide panels of memory-bound kernels, where rows are fewer: up to 10 % less
time where there is one panel.
"""

MOST_TILES = 16
"""The most tiles in rows of a task: blocks of 48 or 128 rows were no faster on Zen 3."""

GATHERED_TILES = 8
"""The same of gathered rows."""

PANELS = 2
"""Panels of a task whose rows stay in L2: gained 0.5 % over larger tasks."""

MEMORY_PANELS = 4
"""Panels of a task whose rows over the whole depth fill more than half of L2, and come from memory
for each group of panels.
"""

GATHERED_PANELS = 8
"""Panels that a gathered block serves, as the copy is done for each task."""


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


def tiling_for(
    unit: VectorUnit, width: int, depth: int, run: int | None = None, bulk: bool = False
) -> Tiling:
    """A tiling for panels of `width` columns whose block of rows stays in L2.

    run: rows are gathered in contiguous runs of this length, and passes are multiples of it; None
    where rows are read in place. bulk: rows are those of images.
    """
    mr, nr = rows_for(unit, width // unit.lanes(32)), width
    share = unit.l1 * (L1_EIGHTHS_WIDE if unit.memory_bound else L1_EIGHTHS) // 8
    deepest = DEEPEST_GATHERED if run else share // (4 * nr)
    if bulk and unit.memory_bound and not run:
        deepest = max(deepest, DEEPEST_IMAGE)
    passes = max(-(-depth // deepest), 1)
    # All passes are about equally deep, in whole runs or in whole steps of the innermost loop.
    multiple = run or unit.unroll
    kc = -(-depth // multiple // passes) * multiple
    # Half of L2 holds the rows of a block; the other half is left to weights and results.
    rows_in_l2 = unit.l2 // 2 // (4 * kc)
    tiles = min(max(rows_in_l2 // mr, 2), GATHERED_TILES if run else MOST_TILES)
    in_l2 = 4 * mr * tiles * depth <= unit.l2 // 2
    panels = GATHERED_PANELS if run else PANELS if in_l2 else MEMORY_PANELS
    return Tiling(mr, nr, tiles, panels, kc)
