"""Loads whose places within a vector are the same pattern in every vector, as where neighbours
change places or one element serves two of them: a whole vector is read and shuffled.
"""

from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.lanes import kept, shuffled
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
    """Whether every load of `value` that neighbouring values of `var` do not read side by side
    follows a pattern, in vectors of `lanes` and of all smaller powers of two.
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
    """Whether the node divides an integer by a power of two."""
    by = as_int(node.b) if isinstance(node, _DIVISIONS) else None
    return by is not None and by > 0 and by & (by - 1) == 0


def read_patterns(value: Expr, var: Any, at: Table, lanes: int) -> dict[int, Any]:
    """For each load of `value` that follows a pattern, by its address, a buffer with what it reads
    in the `lanes` places from `at` on.
    """
    if lanes == 1:
        return {}
    found = {}
    for read in _odd_loads(value, var):
        pattern = _pattern(read, var, lanes)
        assert pattern is not None
        least, most = min(pattern), max(pattern)
        first = substitute(read.indices[0], at) + least
        place = prim.Ramp(first, const(1), most - least + 1) if most > least else first
        vector = shuffled([load(read.source, [place])], [one - least for one in pattern])
        found[read.__chandle__()] = kept(vector, dtype_of(read)).source
    return found


def at_lane(value: Expr, patterns: dict[int, Any], lane: Expr, at: Table) -> Expr:
    """`value` at a place, with elements of the buffers for the loads that follow patterns."""

    def visit(node: Expr) -> Expr | None:
        if node.__chandle__() in patterns:
            return load(patterns[node.__chandle__()], [lane])
        return at.get(node) if isinstance(node, tvm.ir.Var) else None

    return rewrite(value, visit)


def _odd_loads(value: Expr, var: Any) -> list[Any]:
    """The loads that are neither of a single element nor of neighbouring ones."""
    return [one for one in loads(value) if as_int(stride(one.indices[0], var)) not in (0, 1)]


def _pattern(read: Any, var: Any, lanes: int) -> list[int] | None:
    """Where each lane of a vector reads, from where the first one does, if that is the same in all
    vectors, and within two of them.
    """
    analyzer, vector = tvm.sym.Analyzer(), tvm.tirx.Var("vector", "int64")
    begin = vector * lanes
    base = substitute(read.indices[0], {var: begin})
    places = [
        as_int(analyzer.simplify(substitute(read.indices[0], {var: begin + lane}) - base))
        for lane in range(lanes)
    ]
    found = [place for place in places if place is not None]
    if len(found) < lanes or max(found) - min(found) >= 2 * lanes:
        return None
    return found
