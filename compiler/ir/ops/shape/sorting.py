"""Stable sorting: the order of rows, the greatest k, the distinct elements."""

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

Before = Callable[[Any, Any], Any]
DOUBLINGS = 40
"""Merge widths tried: enough for 2**40 elements."""


def merge_sort(count: Any, order: Any, spare: Any, base: Any, before: Before) -> None:
    """Emit a stable bottom-up merge sort of order[base : base + count]; `spare` is scratch of the
    same place.

    before(p, q): an expression, whether the item that index p stands for comes strictly before that
    of q.
    """
    one = ex.prim(1)
    with loop_programs.serial(DOUBLINGS) as step:
        width = one << step
        with (
            loop_programs.when(width < count),
            loop_programs.serial(tirx.floordiv(count + width * 2 - 1, width * 2)) as block,
        ):
            low = block * width * 2
            middle, high = tirx.min(low + width, count), tirx.min(low + width * 2, count)
            _merge(low, middle, high, order, spare, base, before)
            with loop_programs.serial(high - low) as i:
                order[base + low + i] = spare[base + low + i]


def _merge(
    low: Any, middle: Any, high: Any, order: Any, spare: Any, base: Any, before: Before
) -> None:
    left, right = loop_programs.cell(start=low), loop_programs.cell(start=middle)
    with loop_programs.serial(high - low) as k:
        take = loop_programs.cell("bool", left[0] >= middle)
        with loop_programs.when(tirx.And(left[0] < middle, right[0] < high)):
            take[0] = before(order[base + right[0]], order[base + left[0]])
        with loop_programs.when(take[0]):
            spare[base + low + k] = order[base + right[0]]
            right[0] = right[0] + 1
        with loop_programs.when(tirx.Not(take[0])):
            spare[base + low + k] = order[base + left[0]]
            left[0] = left[0] + 1


def precedes(p: Any, q: Any, dtype: str, descending: bool) -> Any:
    """True where element p sorts strictly before q; a NaN is the greatest."""
    if not ew.is_float(dtype):
        return p > q if descending else p < q
    if dtype != "float64":
        p, q = p.astype("float32"), q.astype("float32")
    odd, even = (p, q) if descending else (q, p)
    return tirx.Or(
        p > q if descending else p < q, tirx.And(tirx.isnan(odd), tirx.Not(tirx.isnan(even)))
    )


def sorted_order(b: Builder, x: Value, descending: bool) -> Tensor:
    """For a matrix, each row's indices in sorted order; equal elements keep theirs."""
    rows, count = x.shape
    work = ex.mul(count, 16)

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        order, spare = outputs

        def row(r: Any) -> None:
            base = r * ex.prim(count)
            with loop_programs.serial(count) as i:
                order[base + i] = i
            merge_sort(
                ex.prim(count),
                order,
                spare,
                base,
                lambda p, q: precedes(inputs[0][r, p], inputs[0][r, q], x.dtype, descending),
            )

        loop_programs.spread(rows, row, work)

    size = b.facts.simplify(ex.mul(rows, count))
    order, _ = loop_programs.program(
        b, body, [((size,), "int64"), ((size,), "int64")], x, name="sort"
    )
    return b.tensor(layout.reshape(b, order, [rows, count]))


def top_k(b: Builder, x: Value, k: Extent, axis: int, largest: bool) -> tuple[Value, Value]:
    """The k greatest (or least) elements along an axis, in order, and their indices."""
    rank = len(x.shape)
    axis = layout.axis_of(axis, rank)
    b.require(ex.less_equal(k, x.shape[axis]), f"TopK: k is {k}, the axis has {x.shape[axis]}")
    forth = [*(i for i in range(rank) if i != axis), axis]
    moved = layout.transpose(b, x, forth)
    rows = b.facts.simplify(ex.prod(moved.shape[:-1]))
    matrix = layout.reshape(b, moved, [rows, moved.shape[-1]])
    indices = layout.strided_slice(b, sorted_order(b, matrix, largest), 1, 0, k, 1)
    values = _rows_at(b, matrix, indices)
    back = [forth.index(i) for i in range(rank)]
    shape = [*moved.shape[:-1], k]
    return layout.transpose(b, layout.reshape(b, values, shape), back), layout.transpose(
        b, layout.reshape(b, indices, shape), back
    )


def _rows_at(b: Builder, matrix: Value, indices: Value) -> Value:
    return b.te(
        lambda x, i: te.compute(i.shape, lambda r, c: x(r, i(r, c)), name="rows_at"),
        matrix,
        indices,
        name="rows_at",
    )


def unique(
    b: Builder, x: Value, axis: int | None, ordered: bool
) -> tuple[Value, Value, Value, Value]:
    """Distinct elements, or subtensors along `axis`; where each occurs first; which each input is;
    how many there are.

    In ascending order (a NaN last, all NaN being one), or in order of first occurrence.
    """
    rank = len(x.shape)
    front = (
        x
        if axis is None
        else layout.transpose(b, x, [axis, *(i for i in range(rank) if i != axis)])
    )
    count = b.facts.simplify(ex.prod(x.shape)) if axis is None else front.shape[0]
    width = 1 if axis is None else b.facts.simplify(ex.prod(front.shape[1:]))
    matrix = layout.reshape(b, front, [count, width])
    first, inverse, counts, total = _groups(b, matrix, ordered)
    distinct: Extent = b.known_counts(total, "unique").scalars()[0]
    first, counts = (layout.strided_slice(b, value, 0, 0, distinct, 1) for value in (first, counts))
    taken = layout.take(b, matrix, Indices.from_program(first, count), 0)
    if axis is None:
        return layout.reshape(b, taken, [distinct]), first, inverse, counts
    shaped = layout.reshape(b, taken, [distinct, *front.shape[1:]])
    back = [i + 1 if i < axis else 0 if i == axis else i for i in range(rank)]
    return layout.transpose(b, shaped, back), first, inverse, counts


def _groups(b: Builder, matrix: Value, ordered: bool) -> tuple[Value, ...]:
    """Over the rows of a matrix: first occurrence by group, group by row, rows by group, and the
    number of groups.
    """
    count, width = matrix.shape
    vector = ((count,), "int64")

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        first, inverse, counts, _, order, spare = outputs

        def before(p: Any, q: Any) -> Any:
            return _row_precedes(inputs[0], width, matrix.dtype, p, q)

        with loop_programs.serial(count) as i:
            order[i] = i
        merge_sort(ex.prim(count), order, spare, ex.prim(0), before)
        _number(count, before, outputs)
        if not ordered:
            _renumber(count, first, inverse, counts, order, spare)

    scratch = [vector, vector]
    return loop_programs.program(
        b, body, [vector, vector, vector, ((1,), "int64"), *scratch], matrix, name="unique"
    )[:4]


def _row_precedes(matrix: Any, width: Extent, dtype: str, p: Any, q: Any) -> Any:
    """Lexicographic order of two rows: decided by the first column where they differ."""
    verdict = loop_programs.cell("int64", 0)
    with loop_programs.serial(width) as column, loop_programs.when(tirx.EQ(verdict[0], ex.prim(0))):
        lhs, rhs = matrix[p, column], matrix[q, column]
        less, greater = precedes(lhs, rhs, dtype, False), precedes(rhs, lhs, dtype, False)
        verdict[0] = tirx.Select(less, ex.prim(1), tirx.Select(greater, ex.prim(-1), ex.prim(0)))
    return tirx.EQ(verdict[0], ex.prim(1))


def _number(count: Extent, before: Before, outputs: list[Any]) -> None:
    """Number the groups of equal rows in sorted order."""
    first, inverse, counts, total, order, _ = outputs
    group = loop_programs.cell("int64", -1)
    with loop_programs.serial(count) as i:
        fresh = loop_programs.cell("bool", tirx.EQ(i, ex.prim(0)))
        with loop_programs.when(i > 0):
            fresh[0] = before(order[i - 1], order[i])
        with loop_programs.when(fresh[0]):
            group[0] = group[0] + 1
            first[group[0]] = order[i]
            counts[group[0]] = ex.prim(0)
        inverse[order[i]] = group[0]
        counts[group[0]] = counts[group[0]] + 1
    total[0] = group[0] + 1


def _renumber(count: Extent, first: Any, inverse: Any, counts: Any, rank: Any, spare: Any) -> None:
    """Number the groups anew by first occurrence: `rank` by group, then everything in place by way
    of `spare`.
    """
    number = loop_programs.cell("int64", 0)
    with loop_programs.serial(count) as i, loop_programs.when(tirx.EQ(first[inverse[i]], i)):
        rank[inverse[i]] = number[0]
        number[0] = number[0] + 1
    for values in (first, counts):
        with loop_programs.serial(number[0]) as group:
            spare[rank[group]] = values[group]
        with loop_programs.serial(number[0]) as group:
            values[group] = spare[group]
    with loop_programs.serial(count) as i:
        inverse[i] = rank[inverse[i]]


def arg_extreme(
    b: Builder, x: Value, axis: int, greatest: bool, last: bool, nan: bool = False
) -> Value:
    """The index of the extreme element along an axis, which stays with extent 1; of equal ones the
    first or the last. nan: it is that of the first NaN, where there is one.
    """
    axis = layout.axis_of(axis, len(x.shape))
    extent = x.shape[axis]
    b.require(ex.greater_equal(extent, 1), "ArgMax and ArgMin need an axis of at least one element")
    outer, inner = (
        b.facts.simplify(ex.prod(part)) for part in (x.shape[:axis], x.shape[axis + 1 :])
    )

    def better(new: Any, old: Any) -> Any:
        if x.dtype in ("float16", "bfloat16"):
            new, old = new.astype("float32"), old.astype("float32")
        if greatest:
            wins = new >= old if last else new > old
        else:
            wins = new <= old if last else new < old
        if not nan or not ew.is_float(x.dtype):
            return wins
        return tirx.Or(wins, tirx.And(tirx.isnan(new), tirx.Not(tirx.isnan(old))))

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        def search(i: Any) -> None:
            row, column = tirx.floordiv(i, ex.divisor(inner)), tirx.floormod(i, ex.divisor(inner))
            best, value = (
                loop_programs.cell("int64", 0),
                loop_programs.cell(x.dtype, inputs[0][row, ex.prim(0), column]),
            )
            with (
                loop_programs.serial(extent, 1) as step,
                loop_programs.when(better(inputs[0][row, step, column], value[0])),
            ):
                best[0] = step
                value[0] = inputs[0][row, step, column]
            outputs[0][i] = best[0]

        loop_programs.spread(ex.mul(outer, inner), search, extent)

    size = b.facts.simplify(ex.mul(outer, inner))
    (indices,) = loop_programs.program(
        b,
        body,
        [((size,), "int64")],
        layout.reshape(b, x, [outer, extent, inner]),
        name="arg_extreme",
    )
    return layout.reshape(b, indices, [*x.shape[:axis], 1, *x.shape[axis + 1 :]])
