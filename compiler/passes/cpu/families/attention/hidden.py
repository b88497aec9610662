"""Columns that a mask hides: in front of the first one that a query sees and behind the last one,
nothing is added to its sums.

Causal masks hide half of the columns of a prompt, windows all but some. A mask that is added hides
a column by -inf, whatever finite number the score is, and the column's power is an exact zero: sums
without it have the same bits.
"""

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention.groups import Group
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.softmax import columns, pairwise
from compiler.passes.cpu.shared.loop_nest import vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, let_opaque, serial, store
from compiler.tir.exprs import Expr, Table, load, loads, substitute, uses


def mask_of(attention: Attention) -> Expr | None:
    """What is added to the score, is no part of it, and differs from column to column; None where
    there is no such addend.
    """
    changed = attention.changed
    while isinstance(changed, prim.Add):
        first, second = (_reads_score(attention, side) for side in (changed.a, changed.b))
        addend, rest = (changed.b, changed.a) if first else (changed.a, changed.b)
        if first and second:
            return None
        if uses(addend, attention.column.var):
            return addend
        changed = rest
    return None


def emit_seen(
    attention: Attention, unit: VectorUnit, mask: Expr, group: Group, place: Table
) -> tuple[Expr, Expr]:
    """Emit the first column that any member of the group sees, and the number of columns up to the
    last one.
    """
    column = attention.column
    lanes = unit.lanes(32) if vectorizable(mask, column.var) else 1
    ends = alloc([lanes + 1], "int32", "ends")
    starts = alloc([lanes + 1], "int32", "starts")
    for slot in range(lanes + 1):
        store(ends, 0, slot)
        store(starts, column.extent.astype("int32"), slot)
    # The first members are those of one head.
    each = group.head is not None and uses(mask, group.head.var)
    with serial(group.count if each else group.queries, "member") as i:
        here = group.at(place, i)
        for j, slot in columns(column.extent, lanes):
            hides = substitute(mask, {**here, column.var: j}) == tirx.const(
                float("-inf"), "float32"
            )
            number, start, end = j.astype("int32"), load(starts, [slot]), load(ends, [slot])
            store(ends, tirx.Select(hides, end, tirx.max(end, number + 1)), slot)
            store(starts, tirx.Select(hides, start, tirx.min(start, number)), slot)
    start = let_opaque("start", pairwise(starts, lanes + 1, tirx.min).astype("int64"))
    return start, let_opaque("end", pairwise(ends, lanes + 1, tirx.max).astype("int64"))


def _reads_score(attention: Attention, value: Expr) -> bool:
    return any(read.source.same_as(attention.total) for read in loads(value))
