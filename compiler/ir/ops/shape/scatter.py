"""Writing at computed positions: every scatter keeps its writes to one element in order, so that
repeated indices give one answer.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from tvm import te, tirx

from compiler.errors import ImportFailed
from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.ops.shape import layout
from compiler.ir.ops.shape.indexing import check, check_coordinates, check_within
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.facts import UNBOUNDED


class Reduction(Enum):
    """How a written element combines with the one that is there."""

    NONE = "none"
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"

    @property
    def combine(self) -> Callable[[Any, Any], Any]:
        """The element after the write, from those before it and in the update."""
        return _COMBINE[self]


_COMBINE: dict[Reduction, Callable[[Any, Any], Any]] = {
    Reduction.NONE: lambda old, new: new,
    Reduction.ADD: lambda old, new: old + new,
    Reduction.MUL: lambda old, new: old * new,
    Reduction.MAX: tirx.max,
    Reduction.MIN: tirx.min,
}


def strides_of(shape: Sequence[Extent]) -> list[Extent]:
    """Elements from one step on each axis to the next, of a dense tensor."""
    return [ex.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def scatter_elements(
    b: Builder, x: Value, indices: Value, updates: Value, axis: int, reduction: Reduction
) -> Value:
    """A copy of x with out[i, its coordinate on `axis` replaced by indices[i]] combined with
    updates[i], in order.
    """
    axis = layout.axis_of(axis, len(x.shape))
    _same_shapes(b, indices.shape, updates.shape, x.shape, axis)
    rows = _indices_of_rows(b, x, indices, axis)
    positions = check(b, indices if rows is None else rows, x.shape[axis])
    if rows is not None:
        return _scatter_rows(b, x, positions, updates, reduction)
    size, strides = b.facts.simplify(ex.prod(x.shape)), strides_of(x.shape)
    extents = indices.shape

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        data, index, update = inputs
        (out,) = outputs
        loop_programs.copy(data, out, size)

        def write(*i: Any) -> None:
            point = [positions.address(index[i]) if d == axis else step for d, step in enumerate(i)]
            offset = sum((p * ex.prim(s) for p, s in zip(point, strides, strict=True)), ex.prim(0))
            out[offset] = reduction.combine(out[offset], update[i])

        _walk(extents, axis, write)

    (out,) = loop_programs.program(
        b,
        body,
        [((size,), x.dtype)],
        layout.reshape(b, x, [size]),
        indices,
        updates,
        name="scatter_elements",
    )
    return layout.reshape(b, out, x.shape)


def _indices_of_rows(b: Builder, x: Value, indices: Value, axis: int) -> Value | None:
    """An index for each row, which is all axes behind `axis`, where the indices repeat it along
    them and the rows are x's; None otherwise.
    """
    once = b.repeated.get(indices) if isinstance(indices, Tensor) else None
    rank, same = len(x.shape), b.facts.same
    if once is None or axis == rank - 1 or len(once.shape) != rank:
        return None
    behind = range(axis + 1, rank)
    if not all(same(once.shape[d], 1) is True for d in behind):
        return None
    if not all(same(indices.shape[d], x.shape[d]) is True for d in behind):
        return None
    shape = indices.shape[: axis + 1]
    if not all(same(a, e) is True for a, e in zip(once.shape, shape, strict=False)):
        return None
    return layout.reshape(b, once, shape)


_COLUMNS = 32
"""Elements of a row that one task writes, of every row: writes to one element keep their order."""


def _scatter_rows(
    b: Builder, x: Value, indices: Indices, updates: Value, reduction: Reduction
) -> Value:
    """`scatter_elements` at an index for each row, which is the axes behind the indices'."""
    f, extents = b.facts, indices.shape
    axis = len(extents) - 1
    size, width = (f.simplify(ex.prod(shape)) for shape in (x.shape, x.shape[axis + 1 :]))
    count, strides = f.simplify(ex.prod(extents)), strides_of(x.shape)
    full = isinstance(width, int) and width % _COLUMNS == 0

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        data, index, update = inputs
        (out,) = outputs
        loop_programs.copy(data, out, size)

        def columns(part: Any) -> None:
            first = part * ex.prim(_COLUMNS)
            left = _COLUMNS if full else tirx.min(ex.prim(width) - first, ex.prim(_COLUMNS))

            def row(*i: Any) -> None:
                point = [*i[:-1], indices.address(index[i])]
                start = sum((p * ex.prim(s) for p, s in zip(point, strides, strict=False)), first)
                with loop_programs.serial(left) as j:
                    out[start + j] = reduction.combine(out[start + j], update[(*i, first + j)])

            loop_programs.grid(extents, row)

        loop_programs.spread(ex.ceildiv(width, _COLUMNS), columns, ex.mul(count, _COLUMNS))

    (out,) = loop_programs.program(
        b,
        body,
        [((size,), x.dtype)],
        layout.reshape(b, x, [size]),
        indices.value,
        layout.reshape(b, updates, [*extents, width]),
        name="scatter_rows",
    )
    return layout.reshape(b, out, x.shape)


def _same_shapes(
    b: Builder,
    indices: Sequence[Extent],
    updates: Sequence[Extent],
    data: Sequence[Extent],
    free_axis: int,
) -> None:
    if not len(indices) == len(updates) == len(data):
        raise ImportFailed(
            "ScatterElements: data, indices and updates have different ranks", reason="shape"
        )
    for axis, (one, other) in enumerate(zip(indices, updates, strict=True)):
        b.same(one, other, f"ScatterElements: indices and updates differ on axis {axis}")
        if axis != free_axis:
            b.require(
                ex.less_equal(one, data[axis]),
                f"ScatterElements: the indices exceed the data on axis {axis}",
            )


def _walk(extents: Sequence[Extent], axis: int, write: Callable[..., None]) -> None:
    """All positions; only the first axis is shared among threads, and only where writes along it
    cannot meet.
    """
    if axis == 0:
        loop_programs.grid(extents, write)
    else:
        loop_programs.spread(
            extents[0],
            lambda i: loop_programs.grid(extents[1:], lambda *rest: write(i, *rest)),
            ex.prod(extents[1:]),
        )


def scatter_nd(b: Builder, x: Value, indices: Value, updates: Value, reduction: Reduction) -> Value:
    """A copy of x with the slices at the coordinates in the indices' last axis combined with the
    updates, in order.

    The number of coordinates follows from the ranks: rank(updates) = rank(indices) - 1 + rank(x) -
    coordinates.
    """
    outer = len(indices.shape) - 1
    depth = outer + len(x.shape) - len(updates.shape)
    if not 0 <= depth <= len(x.shape):
        raise ImportFailed(
            "ScatterND: the ranks of data, indices and updates do not fit together", reason="shape"
        )
    b.same(
        indices.shape[-1],
        depth,
        f"ScatterND: the indices' last axis is not {depth}, which the ranks ask for",
    )
    for one, other in zip(updates.shape, [*indices.shape[:-1], *x.shape[depth:]], strict=True):
        b.same(
            one,
            other,
            "ScatterND: the updates' shape does not follow from the indices and the data",
        )
    coordinates = check_coordinates(b, indices, x.shape[:depth])
    return _scatter_slices(b, x, indices, updates, coordinates, reduction)


def _scatter_slices(
    b: Builder,
    x: Value,
    indices: Value,
    updates: Value,
    coordinates: Sequence[Indices],
    reduction: Reduction,
) -> Value:
    f, depth = b.facts, len(coordinates)
    size, count = f.simplify(ex.prod(x.shape)), f.simplify(ex.prod(indices.shape[:-1]))
    width = f.simplify(ex.prod(x.shape[depth:]))
    strides = strides_of(x.shape)

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        data, index, update = inputs
        (out,) = outputs
        loop_programs.copy(data, out, size)
        with loop_programs.serial(count) as n:
            start = sum(
                (
                    along.address(index[n, ex.prim(d)]) * ex.prim(strides[d])
                    for d, along in enumerate(coordinates)
                ),
                ex.prim(0),
            )
            with loop_programs.serial(width) as j:
                out[start + j] = reduction.combine(out[start + j], update[n, j])

    flat = [
        layout.reshape(b, x, [size]),
        layout.reshape(b, indices, [count, depth]),
        layout.reshape(b, updates, [count, width]),
    ]
    (out,) = loop_programs.program(b, body, [((size,), x.dtype)], *flat, name="scatter_nd")
    return layout.reshape(b, out, x.shape)


def tensor_scatter(
    b: Builder, past: Value, update: Value, start: Value | None, axis: int, circular: bool
) -> Value:
    """`past` with each batch entry's steps from start[entry] on `axis` replaced by `update`;
    circular wraps around. No start may be negative, nor leave the update no room.
    """
    axis = layout.axis_of(axis, len(past.shape))
    length, steps = past.shape[axis], update.shape[axis]
    for d, (one, other) in enumerate(zip(past.shape, update.shape, strict=True)):
        if d != axis:
            b.same(one, other, f"TensorScatter: cache and update differ on axis {d}")
    b.require(ex.less_equal(steps, length), "TensorScatter: the update is longer than the cache")

    if start is not None:
        limit = UNBOUNDED if circular else b.facts.simplify(ex.sub(ex.add(length, 1), steps))
        message = f"a start is negative or leaves no room for {steps} steps of {length}"
        check_within(b, start, 0, limit, message)

    def compute(cache: te.Tensor, new: te.Tensor, *starts: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            first = starts[0](i[0]).astype("int64") if starts else ex.prim(0)
            step = i[axis] - first
            if circular:
                step = tirx.floormod(step, tirx.max(ex.prim(length), ex.prim(1)))
            inside = tirx.And(step >= ex.prim(0), step < ex.prim(steps))
            near = tirx.max(tirx.min(step, ex.prim(ex.sub(steps, 1))), ex.prim(0))
            return tirx.if_then_else(inside, new(*i[:axis], near, *i[axis + 1 :]), cache(*i))

        return te.compute(cache.shape, element, name="tensor_scatter")

    return b.te(compute, past, update, *([] if start is None else [start]), name="tensor_scatter")
