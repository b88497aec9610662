"""Reading at computed places: gathers by element, by coordinates, diagonals and one-hot rows;
indices are checked at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.errors import ImportFailed
from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent
from compiler.ir.ops import layout, loops
from compiler.ir.values import Known, Value


def wrap(index: Any, extent: Extent) -> Any:
    """An index expression as int64, negative ones counted from the end."""
    index = index.astype("int64")
    return tirx.Select(index < ex.prim(0), index + ex.prim(extent), index)


def check(b: Builder, indices: Value, extent: Extent, what: str, low: int | None = None) -> None:
    """Require every index to be in [low, extent), low by default -extent; at run time where import
    cannot tell.
    """
    message = f"{what}: an index is out of range for an axis of {extent}"
    least = ex.sub(0, extent) if low is None else low
    if isinstance(indices, Known) and not indices.symbolic and isinstance(extent, int):
        if indices.data.size and (indices.data.min() < least or indices.data.max() >= extent):
            raise ImportFailed(message, reason="index")
        return
    total = b.facts.simplify(ex.product(indices.shape))
    flat = layout.reshape(b, indices, [total])

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        bad = loops.cell("bool", False)
        with loops.serial(total) as i:
            index = inputs[0][i].astype("int64")
            bad[0] = tirx.Or(bad[0], tirx.Or(index >= ex.prim(extent), index < ex.prim(least)))
        outputs[0][0] = tirx.Select(bad[0], ex.prim(0), ex.prim(b.checks.number(message)))

    (held,) = loops.program(b, body, [((1,), "int64")], flat, name="check_indices")
    b.verify(held, message)


def gather_elements(b: Builder, x: Value, indices: Value, axis: int) -> Value:
    """out[i] = x[i with its coordinate on `axis` replaced by indices[i]]; the result has the
    indices' shape.
    """
    axis = layout.axis_of(axis, len(x.shape))
    _fits(b, indices.shape, x.shape, axis, "GatherElements")
    check(b, indices, x.shape[axis], "GatherElements")
    extent = x.shape[axis]

    def compute(data: te.Tensor, index: te.Tensor) -> te.Tensor:
        return te.compute(
            index.shape,
            lambda *i: data(*i[:axis], wrap(index(*i), extent), *i[axis + 1 :]),
            name="gather_elements",
        )

    return b.te(compute, x, indices, name="gather_elements")


def _fits(
    b: Builder, inner: Sequence[Extent], outer: Sequence[Extent], axis: int, what: str
) -> None:
    if len(inner) != len(outer):
        raise ImportFailed(f"{what}: the indices' rank differs from the data's", reason="shape")
    for place, (small, large) in enumerate(zip(inner, outer, strict=True)):
        if place != axis:
            b.require(
                ex.less_equal(small, large), f"{what}: the indices exceed the data on axis {place}"
            )


def check_coordinates(b: Builder, indices: Value, extents: Sequence[Extent], what: str) -> None:
    """Require the last axis of `indices` to hold valid coordinates of a tensor with these leading
    extents.
    """
    rank = len(indices.shape)
    for place, extent in enumerate(extents):
        part = (
            layout.strided_slice(b, indices, rank - 1, place, place + 1, 1)
            if len(extents) > 1
            else indices
        )
        check(b, part, extent, what)


def gather_nd(b: Builder, x: Value, indices: Value, depth: int, batch: int) -> Value:
    """Slices of x at the coordinates in the indices' last axis, of `depth` elements; the first
    `batch` axes are shared.
    """
    for axis in range(batch):
        b.same(x.shape[axis], indices.shape[axis], f"GatherND: batch axis {axis} differs")
    check_coordinates(b, indices, x.shape[batch : batch + depth], "GatherND")
    outer = len(indices.shape) - 1
    shape = [*indices.shape[:-1], *x.shape[batch + depth :]]

    def compute(data: te.Tensor, index: te.Tensor) -> te.Tensor:
        def at(*i: Any) -> Any:
            place = [wrap(index(*i[:outer], ex.prim(d)), x.shape[batch + d]) for d in range(depth)]
            return data(*i[:batch], *place, *i[outer:])

        return te.compute([ex.prim(e) for e in shape], at, name="gather_nd")

    return b.te(compute, x, indices, name="gather_nd")


def one_hot(b: Builder, indices: Value, depth: Extent, values: Value, axis: int) -> Value:
    """values[1] where the index equals the place on the new axis, values[0] elsewhere; indices
    beyond the depth give none.

    Negative indices count from the end. Non-integer indices are truncated.
    """
    rank = len(indices.shape) + 1
    axis = layout.axis_of(axis, rank)
    shape = [*indices.shape[:axis], depth, *indices.shape[axis:]]

    def compute(index: te.Tensor, pair: te.Tensor) -> te.Tensor:
        def at(*i: Any) -> Any:
            hot = tirx.EQ(wrap(index(*i[:axis], *i[axis + 1 :]), depth), i[axis])
            return tirx.Select(hot, pair(ex.prim(1)), pair(ex.prim(0)))

        return te.compute([ex.prim(e) for e in shape], at, name="one_hot")

    return b.te(compute, indices, values, name="one_hot")


def triangle(b: Builder, x: Value, upper: bool, k: Extent) -> Value:
    """The last two axes with zeros below (upper) or above the k-th diagonal."""
    zero = tirx.const(0, x.dtype)

    def compute(data: te.Tensor) -> te.Tensor:
        def at(*i: Any) -> Any:
            across = i[-1] - i[-2]
            keep = across >= ex.prim(k) if upper else across <= ex.prim(k)
            return tirx.Select(keep, data(*i), zero)

        return te.compute(data.shape, at, name="triangle")

    return b.te(compute, x, name="triangle")


def eye(b: Builder, rows: Extent, columns: Extent, k: int, dtype: str) -> Value:
    """A matrix with ones on its k-th diagonal."""
    if isinstance(rows, int) and isinstance(columns, int) and rows * columns <= 4096:
        return Known(np.eye(rows, columns, k).astype(np.dtype(dtype)), dtype)
    one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
    shape = [ex.prim(rows), ex.prim(columns)]
    return b.te(
        lambda: te.compute(
            shape, lambda i, j: tirx.Select(tirx.EQ(j - i, ex.prim(k)), one, zero), name="eye"
        ),
        name="eye",
    )


def reverse_sequence(b: Builder, x: Value, lengths: Value, batch: int, time: int) -> Value:
    """Each batch entry's first lengths[entry] steps along the time axis in reverse order, the rest
    as they are.
    """
    b.same(
        lengths.shape[0],
        x.shape[batch],
        "ReverseSequence: as many lengths as batch entries are needed",
    )

    def compute(data: te.Tensor, count: te.Tensor) -> te.Tensor:
        def at(*i: Any) -> Any:
            length = count(i[batch]).astype("int64")
            place = tirx.Select(i[time] < length, length - ex.prim(1) - i[time], i[time])
            return data(*(place if axis == time else step for axis, step in enumerate(i)))

        return te.compute(data.shape, at, name="reverse_sequence")

    return b.te(compute, x, lengths, name="reverse_sequence")


def tile(b: Builder, x: Value, repeats: Sequence[Extent]) -> Value:
    """The elements repeated along each axis."""
    shape = b.extents(
        [ex.mul(extent, count) for extent, count in zip(x.shape, repeats, strict=True)], "tiled"
    )
    if (
        isinstance(x, Known)
        and not x.symbolic
        and all(isinstance(e, int) for e in shape)
        and ex.product(shape) <= 4096
    ):
        return Known(np.tile(x.data, [int(count) for count in repeats]), x.dtype)

    def source(axis: int, i: Any) -> Any:
        return (
            i
            if b.facts.same(repeats[axis], 1) is True
            else tirx.floormod(i, tirx.max(ex.prim(x.shape[axis]), ex.prim(1)))
        )

    def compute(data: te.Tensor) -> te.Tensor:
        return te.compute(
            [ex.prim(e) for e in shape],
            lambda *i: data(*(source(axis, step) for axis, step in enumerate(i))),
            name="tile",
        )

    return b.te(compute, x, name="tile")
