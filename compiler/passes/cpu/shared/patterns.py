"""Loads whose lanes read the same offsets in every vector, such as neighbours that are swapped or
elements that are used twice: a vector is loaded and shuffled.
"""

from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.lanes import keep_in_register, shuffle
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    const,
    dtype_of,
    is_choice,
    load,
    loads,
    nodes,
    rewrite,
    substitute,
)
from compiler.tir.flat import stride

_DIVISIONS = (prim.FloorDiv, prim.FloorMod)


def follows_patterns(value: Expr, var: Any, lanes: int) -> bool:
    """True if every load of `value` that is not contiguous along `var` follows a pattern, in
    vectors of `lanes` and of all smaller powers of two.
    """
    # A pattern is read at once, whichever side of a choice it stands on.
    if lanes == 1 or any(is_choice(node) for node in nodes(value)):
        return False
    widths = [1 << power for power in range(1, lanes.bit_length())]
    return all(
        dtype_of(read) != "bool" and all(_pattern(read, var, width) for width in widths)
        for read in _odd_loads(value, var)
    )


def is_shift_or_mask(node: Expr) -> bool:
    """True if the node divides an integer by a power of two."""
    by = as_int(node.b) if isinstance(node, _DIVISIONS) else None
    return by is not None and by > 0 and by & (by - 1) == 0


def read_patterns(value: Expr, var: Any, position: Table, lanes: int) -> dict[int, Any]:
    """Emit the loads of `value` that follow a pattern: by the address of each load, a buffer of the
    `lanes` elements from `position` on.
    """
    if lanes == 1:
        return {}
    buffers = {}
    for read in _odd_loads(value, var):
        pattern = _pattern(read, var, lanes)
        assert pattern is not None
        least, most = min(pattern), max(pattern)
        first = substitute(read.indices[0], position) + least
        index = prim.Ramp(first, const(1), most - least + 1) if most > least else first
        vector = shuffle([load(read.source, [index])], [offset - least for offset in pattern])
        buffers[read.__chandle__()] = keep_in_register(vector, dtype_of(read)).source
    return buffers


def at_lane(value: Expr, patterns: dict[int, Any], lane: Expr, position: Table) -> Expr:
    """`value` at a position; loads that follow patterns read a lane of their buffers."""

    def visit(node: Expr) -> Expr | None:
        if node.__chandle__() in patterns:
            return load(patterns[node.__chandle__()], [lane])
        return position.get(node) if isinstance(node, tvm.ir.Var) else None

    return rewrite(value, visit)


def _odd_loads(value: Expr, var: Any) -> list[Any]:
    """The loads that are neither of a single element nor of neighbouring ones."""
    return [one for one in loads(value) if as_int(stride(one.indices[0], var)) not in (0, 1)]


def _pattern(read: Any, var: Any, lanes: int) -> list[int] | None:
    """The offset of each lane's element from that of the first lane, None unless it is the same in
    all vectors and within two of them.
    """
    analyzer, vector = tvm.sym.Analyzer(), tvm.tirx.Var("vector", "int64")
    begin = vector * lanes
    base = substitute(read.indices[0], {var: begin})
    offsets = [
        as_int(analyzer.simplify(substitute(read.indices[0], {var: begin + lane}) - base))
        for lane in range(lanes)
    ]
    known = [offset for offset in offsets if offset is not None]
    if len(known) < lanes or max(known) - min(known) >= 2 * lanes:
        return None
    return known
