"""The tasks of an integer matmul: blocks of rows by groups of panels."""

from collections.abc import Iterator
from math import gcd

from tvm import tirx

from compiler.passes.cpu.families.int8 import plan
from compiler.passes.cpu.families.int8.layout import Layout
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import let, let_opaque, parallel
from compiler.tir.exprs import Expr, const, either
from compiler.tir.loops import PARALLEL_FLOPS

Part = tuple[Expr, Expr]
"""(first, count)."""


def share_tasks(layout: Layout, unit: VectorUnit, m: Expr) -> Iterator[tuple[Part, Part]]:
    """The rows and the panels of every task, in parallel where there is enough to do.

    Threads take neighbouring tasks. In the order of the rows each thread reads all weights for
    every block of rows. Where weights do not stay in L2 and there are fewer rows than columns, or
    where all rows are one block, each thread has columns of its own instead.
    """
    step = min(layout.instruction.rows, plan.STEP)
    steps = let("steps", tirx.ceildiv(m, step))
    fewest = tirx.ceildiv(steps, layout.rows // step)
    by_rows = _is_by_rows(layout, unit, m)
    most_panels = _panels_of_group(layout, -(-layout.panels // plan.PANELS))
    few_panels = min(most_panels, _panels_of_group(layout, plan.EVEN))
    panels = either(by_rows, const(most_panels), const(few_panels))
    groups = let("groups", tirx.ceildiv(const(layout.panels), panels))
    even = plan.EVEN // gcd(plan.EVEN, -(-layout.panels // most_panels))
    most = tirx.min(tirx.ceildiv(fewest, even) * even, steps)
    blocks = let("blocks", fewest if layout.instruction.scalar else either(by_rows, most, fewest))
    # Opaque, because in a loop over blocks TVM knows that there is one, drops the maximum, and
    # computes quotients ahead of the loop, where there may be none to divide by.
    parts = let_opaque("parts", tirx.max(blocks, 1))
    work = m * (2 * layout.length * layout.columns)
    with parallel(blocks * groups, work >= PARALLEL_FLOPS) as task:
        inside = let("inside", either(by_rows, groups, parts))
        outer, inner = tirx.truncdiv(task, inside), tirx.truncmod(task, inside)
        block = let("block", either(by_rows, outer, inner))
        panel = let("first_panel", either(by_rows, inner, outer) * panels)
        first = let("first", tirx.truncdiv(block * steps, parts) * step)
        end = tirx.min(tirx.truncdiv((block + 1) * steps, parts) * step, m)
        equal = layout.panels % most_panels == 0 and layout.panels % few_panels == 0
        count = panels if equal else tirx.min(panels, layout.panels - panel)
        yield (first, let("rows", end - first)), (panel, count)


def _is_by_rows(layout: Layout, unit: VectorUnit, m: Expr) -> Expr | bool:
    """The condition that tasks are in the order of the rows."""
    if layout.instruction.scalar:
        return True
    several = m > layout.rows
    return (
        several if layout.weight_bytes <= unit.l2 // 2 else tirx.all(several, m >= layout.columns)
    )


def _panels_of_group(layout: Layout, groups: int) -> int:
    """Panels of each of `groups` equal groups."""
    return -(-layout.panels // groups)
