"""The tasks of a convolution in Winograd's form: blocks of tiles, or halves of columns."""

from collections.abc import Iterator

from tvm import tirx

from compiler.passes.cpu.families.winograd import plan
from compiler.passes.cpu.families.winograd.match import Winograd
from compiler.passes.cpu.families.winograd.program import POINTS
from compiler.passes.cpu.families.winograd.tile import most_column_tiles, tiles_of
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import let, let_opaque, parallel
from compiler.tir.exprs import Expr, const, either
from compiler.tir.loops import PARALLEL_FLOPS

Part = tuple[Expr, Expr]
"""(first, count)."""


def share_tasks(winograd: Winograd, unit: VectorUnit, tiles: Expr) -> Iterator[tuple[Part, Part]]:
    """The tiles and the panels of every task, in parallel where there is enough to do.

    There is an even number of blocks of about equally many tiles, for two threads. Each block reads
    all weights once: where these do not stay in L2 and all tiles are one block, each of two threads
    has columns of its own instead, and both transform the input.
    """
    most_tiles, panels = most_column_tiles(winograd, unit), winograd.padded // winograd.width
    by_columns = tiles <= most_tiles if most_tiles else False
    steps = let("steps", tirx.ceildiv(tiles, plan.ROWS))
    fewest = tirx.ceildiv(steps, tiles_of(unit, winograd.depth, winograd.padded) // plan.ROWS)
    even = tirx.min(tirx.ceildiv(fewest, 2) * 2, steps)
    groups = let("groups", either(by_columns, const(2), const(1)))
    # Opaque, as in `int8.tasks`: no quotient may be computed where there are no blocks.
    blocks = let_opaque("blocks", either(by_columns, tirx.min(steps, 1), even))
    parts = let_opaque("parts", tirx.max(blocks, 1))
    # The transforms are left out: they are little beside the matmuls.
    work = tiles * (2 * POINTS * winograd.depth * winograd.columns)
    with parallel(blocks * groups, work >= PARALLEL_FLOPS) as task:
        block = let("block", tirx.truncdiv(task, groups))
        group = let("group", tirx.truncmod(task, groups))
        first = let("first", tirx.truncdiv(block * steps, parts) * plan.ROWS)
        end = tirx.min(tirx.truncdiv((block + 1) * steps, parts) * plan.ROWS, tiles)
        panel = let("first_panel", tirx.truncdiv(group * panels, groups))
        beyond = tirx.truncdiv((group + 1) * panels, groups)
        yield (first, let("count", end - first)), (panel, let("some", beyond - panel))
