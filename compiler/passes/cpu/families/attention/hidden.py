"""Columns that a mask hides: those before the first visible one of a query and after the last one
are left out.

Causal masks hide half of the columns of a prompt, sliding windows nearly all. A mask of -inf hides
a column whatever finite number the score is: the column's power is exactly zero, and results
without it have the same bits. A finite mask does so where no score of the task is large enough to
make up for it, which the greatest magnitudes of queries and keys bound (`emit_bound`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention.groups import Group
from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.scores import lanes_of
from compiler.passes.cpu.families.attention.softmax import columns, pairwise
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, let_opaque, serial, store, vectorize, when
from compiler.tir.exprs import Expr, Table, const, load, loads, replace_loads, substitute, uses

_NEGLIGIBLE = 256.0
"""The power of a score that is this far below another is 0: somewhat more than 88."""


class Mask(NamedTuple):
    """A mask that is added to scores.

    value: the addend, which depends on the column; scaled: the value that it is added to, None
    unless that is the score times a factor of the attention.
    """

    value: Expr
    scaled: Expr | None


def mask_of(attention: Attention) -> Mask | None:
    """The mask that is added to the score, or selected in its place: then it is 0 where the score
    is selected. None without a mask, and in a safe attention, where values that are NaN or infinite
    count in hidden columns too.
    """
    if attention.safe:
        return None
    changed, only = attention.changed, True
    while isinstance(changed, prim.Add):
        first, second = (_reads_score(attention, side) for side in (changed.a, changed.b))
        addend, rest = (changed.b, changed.a) if first else (changed.a, changed.b)
        if first and second:
            return None
        if uses(addend, attention.column.var):
            return Mask(addend, rest if only and _is_scaled(attention, rest) else None)
        changed, only = rest, False
    if not isinstance(changed, prim.Select) or _reads_score(attention, changed.condition):
        return None
    first, second = (
        _reads_score(attention, side) for side in (changed.true_value, changed.false_value)
    )
    if first == second or not uses(changed.condition, attention.column.var):
        return None
    zero, rest = tirx.const(0, "float32"), changed.true_value if first else changed.false_value
    sides = (zero, changed.false_value) if first else (changed.true_value, zero)
    value = tirx.Select(changed.condition, *sides)
    return Mask(value, rest if only and _is_scaled(attention, rest) else None)


def emit_bound(
    attention: Attention,
    unit: VectorUnit,
    mask: Mask,
    group: Group,
    position: Table,
    queries: tuple[Expr, Expr],
) -> Expr | None:
    """Emit an upper bound of the magnitude of the scaled scores of a group's heads and queries,
    (first, count); infinity where the mask's ends suggest that no finite number hides columns. None
    where scores are not only scaled before the mask is added.
    """
    if mask.scaled is None:
        return None
    bound, n = alloc([1], "float32", "bound"), attention.column.extent
    store(bound, float("inf"), 0)
    with when(n > 0):
        # Causal masks hide the last column from the first query of a task, windows the first one.
        member = group.member({**position, attention.row.var: queries[0]}, 0)
        ends = [_value(attention, mask, member, column) for column in (const(0), n - 1)]
        low = [tirx.And(end != _f(float("-inf")), end < _f(-_NEGLIGIBLE)) for end in ends]
        with when(tirx.Or(*low)):
            query = _magnitude(
                attention, unit, attention.query, _queries(attention, group, position, queries)
            )
            key = _magnitude(attention, unit, attention.scaled_key, _keys(attention, member))
            score = _f(attention.head_depth) * query * key
            scaled = replace_loads(mask.scaled, attention.total, score)
            store(bound, tirx.max(scaled, -scaled), 0)
    return load(bound, [0])


def emit_visible(
    attention: Attention,
    unit: VectorUnit,
    mask: Mask,
    group: Group,
    position: Table,
    bound: Expr | None = None,
) -> tuple[Expr, Expr]:
    """Emit [first, end) of the columns that are visible to any member of the group. bound: the
    result of `emit_bound`, None where only -inf hides a column.
    """
    column = attention.column
    lanes = unit.lanes(32) if is_vectorizable(mask.value, column.var) else 1
    ends = alloc([lanes + 1], "int32", "ends")
    starts = alloc([lanes + 1], "int32", "starts")
    for slot in range(lanes + 1):
        store(ends, 0, slot)
        store(starts, column.extent.astype("int32"), slot)
    # The first members are those of one head.
    by_head = group.head is not None and uses(mask.value, group.head.var)
    with serial(group.count if by_head else group.queries, "member") as i:
        member = group.member(position, i)
        limit = _f(float("-inf")) if bound is None else _limit(attention, mask, member, bound)
        for strip, lane, slot in columns(column.extent, lanes):
            j = strip * lanes + lane
            hides = _value(attention, mask, member, j) <= limit
            index, start, end = j.astype("int32"), load(starts, [slot]), load(ends, [slot])
            store(ends, tirx.Select(hides, end, tirx.max(end, index + 1)), slot)
            store(starts, tirx.Select(hides, start, tirx.min(start, index)), slot)
    start = let_opaque("start", pairwise(starts, lanes + 1, tirx.min).astype("int64"))
    return start, let_opaque("end", pairwise(ends, lanes + 1, tirx.max).astype("int64"))


def _limit(attention: Attention, mask: Mask, position: Table, bound: Expr) -> Expr:
    """Emit the greatest value of the mask that hides a column of a row.

    Where the mask is b the masked score is at least b - bound, where it is a at most a + bound: the
    power there is 0 if a is below b by twice the bound and some more. Twice as much, and b's
    magnitude, leave room for rounding errors. A bound that is infinite or NaN results in -inf.
    """
    row, column = attention.row, attention.column
    limit = alloc([1], "float32", "limit")
    store(limit, float("-inf"), 0)
    # In causal masks the first column is visible, in windows a query's own.
    own = tirx.max(tirx.min(column.extent - row.extent + position[row.var], column.extent - 1), 0)
    with when(column.extent > 0):
        shown = [_value(attention, mask, position, j) for j in (const(0), own)]
        greatest = tirx.max(*shown)
        size = tirx.max(greatest, -greatest)
        below = greatest - (bound * _f(4) + size + _f(_NEGLIGIBLE))
        # NaN is not greater.
        store(limit, tirx.Select(below > _f(float("-inf")), below, _f(float("-inf"))), 0)
    return load(limit, [0])


def _value(attention: Attention, mask: Mask, position: Table, column: Expr) -> Expr:
    return substitute(mask.value, {**position, attention.column.var: column})


def _queries(
    attention: Attention, group: Group, position: Table, queries: tuple[Expr, Expr]
) -> Iterator[Table]:
    with serial(queries[1], "row") as row, serial(group.count, "head") as i:
        yield group.member({**position, attention.row.var: queries[0] + row}, i)


def _keys(attention: Attention, position: Table) -> Iterator[Table]:
    with serial(attention.column.extent, "column") as column:
        yield {**position, attention.column.var: column}


def _magnitude(
    attention: Attention, unit: VectorUnit, value: Expr, positions: Iterator[Table]
) -> Expr:
    """Emit the greatest magnitude of the elements of queries or keys; NaN where one of them is."""
    lanes = lanes_of(attention, unit)
    acc = alloc([lanes], "int32", "acc")
    for slot in range(lanes):
        store(acc, 0, slot)
    for position in positions:
        with serial(attention.head_depth // lanes, "k") as strip, vectorize(lanes) as lane:
            element = substitute(value, {**position, attention.depth.var: strip * lanes + lane})
            # Magnitudes are in the order of their bits, with NaN beyond infinity.
            bits = tirx.reinterpret("int32", element) & tirx.const(0x7FFFFFFF, "int32")
            store(acc, tirx.max(load(acc, [lane]), bits), lane)
    return tirx.reinterpret("float32", pairwise(acc, lanes, tirx.max))


def _is_scaled(attention: Attention, value: Expr) -> bool:
    """True if the value is the score times factors that are the same for all scores."""
    if isinstance(value, prim.Mul | prim.Div):
        first, second = value.a, value.b
        if isinstance(value, prim.Mul) and _reads_score(attention, second):
            first, second = second, first
        axes = (*attention.batch, attention.row, attention.column)
        same = not any(uses(second, axis.var) for axis in axes)
        return same and not _reads_score(attention, second) and _is_scaled(attention, first)
    return any(read.same_as(value) for read in loads(value)) and _reads_score(attention, value)


def _reads_score(attention: Attention, value: Expr) -> bool:
    return any(read.source.same_as(attention.total) for read in loads(value))


def _f(value: float) -> Expr:
    return tirx.const(value, "float32")
