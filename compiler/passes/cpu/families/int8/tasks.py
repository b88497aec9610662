"""How an integer matmul is cut into tasks: blocks of rows by groups of panels."""

from collections.abc import Iterator
from math import gcd

from tvm import tirx

from compiler.passes.cpu.families.int8.layout import Layout
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import let, let_opaque, share_out
from compiler.tir.exprs import Expr, const, either
from compiler.tir.loops import PARALLEL_FLOPS

PANELS = 16
"""The most panels of a task, for which its rows are gathered once."""
_EVEN = 4
"""Tasks that two or four threads share equally."""
_STEP = 6
"""Blocks begin at multiples of so many rows: half a tile with AVX-512, else a tile of six."""

Part = tuple[Expr, Expr]
"""The first, and how many."""


def share_tasks(layout: Layout, unit: VectorUnit, m: Expr) -> Iterator[tuple[Part, Part]]:
    """The rows and the panels of every task, in parallel where there is enough to do.

    Threads take neighbouring tasks. In the order of the rows each thread reads all weights for
    every block of them. Where these do not rest in L2, and there are fewer rows than columns, each
    thread has columns of its own instead, and so it has where all rows are one block.
    """
    step = min(layout.product.rows, _STEP)
    steps = let("steps", tirx.ceildiv(m, step))
    fewest = tirx.ceildiv(steps, layout.rows // step)
    by_rows = _by_rows(layout, unit, m)
    wide = _panels(layout, -(-layout.panels // PANELS))
    narrow = min(wide, _panels(layout, _EVEN))
    panels = either(by_rows, const(wide), const(narrow))
    groups = let("groups", tirx.ceildiv(const(layout.panels), panels))
    even = _EVEN // gcd(_EVEN, -(-layout.panels // wide))
    most = tirx.min(tirx.ceildiv(fewest, even) * even, steps)
    blocks = let("blocks", fewest if layout.product.scalar else either(by_rows, most, fewest))
    # Opaque, because in a loop over blocks TVM knows that there is one, drops the maximum, and
    # computes quotients ahead of the loop, where there may be none to divide by.
    parts = let_opaque("parts", tirx.max(blocks, 1))
    work = m * (2 * layout.length * layout.columns)
    for task in share_out(blocks * groups, work >= PARALLEL_FLOPS):
        inside = let("inside", either(by_rows, groups, parts))
        outer, inner = tirx.truncdiv(task, inside), tirx.truncmod(task, inside)
        block = let("block", either(by_rows, outer, inner))
        panel = let("first_panel", either(by_rows, inner, outer) * panels)
        first = let("first", tirx.truncdiv(block * steps, parts) * step)
        end = tirx.min(tirx.truncdiv((block + 1) * steps, parts) * step, m)
        equal = layout.panels % wide == 0 and layout.panels % narrow == 0
        count = panels if equal else tirx.min(panels, layout.panels - panel)
        yield (first, let("rows", end - first)), (panel, count)


def _by_rows(layout: Layout, unit: VectorUnit, m: Expr) -> Expr | bool:
    """Whether tasks lie in the order of the rows."""
    if layout.product.scalar:
        return True
    several = m > layout.rows
    return (
        several if layout.weight_bytes <= unit.l2 // 2 else tirx.all(several, m >= layout.columns)
    )


def _panels(layout: Layout, groups: int) -> int:
    """Panels of each of so many equal groups."""
    return -(-layout.panels // groups)
