"""Reading at computed positions: gathers by element, by coordinates, diagonals and one-hot rows;
indices are checked at run time.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.errors import ImportFailed
from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices, wrap
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def check(b: Builder, indices: Value, extent: Extent, what: str = "an index") -> Indices:
    """The integers as positions on an axis, each required to be in [-extent, extent); at run time
    where import cannot tell.
    """
    message = f"{what} is out of range for an axis of {extent}"
    check_within(b, indices, ex.sub(0, extent), extent, message)
    return Indices(indices, extent)


def check_within(b: Builder, values: Value, least: Extent, limit: Extent, message: str) -> None:
    """Require integers, such as lengths, to be in [least, limit)."""
    if isinstance(values, Known) and not values.symbolic:
        if values.data.size:
            lowest, greatest = int(values.data.min()), int(values.data.max())
            fits = ex.both(ex.less_equal(least, lowest), ex.less(greatest, limit))
            b.require(fits, message)
        return
    total = b.facts.simplify(ex.prod(values.shape))
    flat = layout.reshape(b, values, [total])

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        bad = loop_programs.cell("bool", False)
        with loop_programs.serial(total) as i:
            index = inputs[0][i].astype("int64")
            bad[0] = tirx.Or(bad[0], tirx.Or(index >= ex.prim(limit), index < ex.prim(least)))
        outputs[0][0] = tirx.Select(bad[0], ex.prim(0), ex.prim(b.checks.number(message)))

    (verdict,) = loop_programs.program(b, body, [((1,), "int64")], flat, name="check_indices")
    b.verify(verdict, message)


def check_scales(b: Builder, values: Value, most: float, message: str) -> None:
    """Require floats, such as scales, to be above 0 and at most `most`."""
    if isinstance(values, Known) and not values.symbolic:
        if not ((values.data > 0) & (values.data <= most)).all():
            raise ImportFailed(message, reason="shape")
        return
    total = b.facts.simplify(ex.prod(values.shape))
    flat = layout.reshape(b, values, [total])
    zero, limit = tirx.const(0, values.dtype), tirx.const(most, values.dtype)

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        good = loop_programs.cell("bool", True)
        with loop_programs.serial(total) as i:
            good[0] = tirx.all(good[0], inputs[0][i] > zero, inputs[0][i] <= limit)
        outputs[0][0] = tirx.Select(good[0], ex.prim(b.checks.number(message)), ex.prim(0))

    (verdict,) = loop_programs.program(b, body, [((1,), "int64")], flat, name="check_scales")
    b.verify(verdict, message)


def item(b: Builder, x: Value, axis: int, position: int) -> Value:
    """The slice of x at one position that the model's form fixes, which the axis must have."""
    return layout.take(b, x, check(b, Known.of(position), x.shape[axis], f"index {position}"), axis)


def check_lengths(b: Builder, lengths: Value, extent: Extent) -> None:
    """Require that of an axis each of so many first elements are there."""
    message = f"a length is negative or exceeds the axis of {extent}"
    check_within(b, lengths, 0, b.facts.simplify(ex.add(extent, 1)), message)


def gather_elements(b: Builder, x: Value, indices: Value, axis: int) -> Value:
    """out[i] = x[i with its coordinate on `axis` replaced by indices[i]]; the result has the
    indices' shape.
    """
    axis = layout.axis_of(axis, len(x.shape))
    _fits(b, indices.shape, x.shape, axis, "GatherElements")
    positions = check(b, indices, x.shape[axis])

    def compute(data: te.Tensor, index: te.Tensor) -> te.Tensor:
        return te.compute(
            index.shape,
            lambda *i: data(*i[:axis], positions.address(index(*i)), *i[axis + 1 :]),
            name="gather_elements",
        )

    return b.te(compute, x, indices, name="gather_elements")


def _fits(
    b: Builder, inner: Sequence[Extent], outer: Sequence[Extent], free_axis: int, what: str
) -> None:
    if len(inner) != len(outer):
        raise ImportFailed(f"{what}: the indices' rank differs from the data's", reason="shape")
    for axis, (small, large) in enumerate(zip(inner, outer, strict=True)):
        if axis != free_axis:
            b.require(
                ex.less_equal(small, large), f"{what}: the indices exceed the data on axis {axis}"
            )


def check_coordinates(b: Builder, indices: Value, extents: Sequence[Extent]) -> list[Indices]:
    """The last axis of `indices` as coordinates of a tensor with these leading extents, one after
    the other.
    """
    rank = len(indices.shape)
    parts = [
        layout.strided_slice(b, indices, rank - 1, axis, axis + 1, 1)
        if len(extents) > 1
        else indices
        for axis in range(len(extents))
    ]
    return [check(b, part, extent) for part, extent in zip(parts, extents, strict=True)]


def gather_nd(b: Builder, x: Value, indices: Value, depth: int, batch: int) -> Value:
    """Slices of x at the coordinates in the indices' last axis, of `depth` elements; the first
    `batch` axes are shared.
    """
    for axis in range(batch):
        b.same(x.shape[axis], indices.shape[axis], f"GatherND: batch axis {axis} differs")
    coordinates = check_coordinates(b, indices, x.shape[batch : batch + depth])
    outer = len(indices.shape) - 1
    shape = [*indices.shape[:-1], *x.shape[batch + depth :]]

    def compute(data: te.Tensor, index: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            point = [c.address(index(*i[:outer], ex.prim(d))) for d, c in enumerate(coordinates)]
            return data(*i[:batch], *point, *i[outer:])

        return te.compute([ex.prim(e) for e in shape], element, name="gather_nd")

    return b.te(compute, x, indices, name="gather_nd")


def one_hot(b: Builder, indices: Value, depth: Extent, values: Value, axis: int) -> Value:
    """values[1] where the index equals the position on the new axis, values[0] elsewhere; indices
    beyond the depth give none.

    Negative indices count from the end. Non-integer indices are truncated.
    """
    rank = len(indices.shape) + 1
    axis = layout.axis_of(axis, rank)
    shape = [*indices.shape[:axis], depth, *indices.shape[axis:]]

    def compute(index: te.Tensor, pair: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            # No address, so that nothing is checked: indices beyond the depth are in no column.
            hot = tirx.EQ(wrap(index(*i[:axis], *i[axis + 1 :]), depth), i[axis])
            return tirx.Select(hot, pair(ex.prim(1)), pair(ex.prim(0)))

        return te.compute([ex.prim(e) for e in shape], element, name="one_hot")

    return b.te(compute, indices, values, name="one_hot")


def triangle(b: Builder, x: Value, upper: bool, k: Extent) -> Value:
    """The last two axes with zeros below (upper) or above the k-th diagonal."""
    zero = tirx.const(0, x.dtype)

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            across = i[-1] - i[-2]
            keep = across >= ex.prim(k) if upper else across <= ex.prim(k)
            return tirx.Select(keep, data(*i), zero)

        return te.compute(data.shape, element, name="triangle")

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
    as they are; no length may be negative or exceed the axis.
    """
    b.same(
        lengths.shape[0],
        x.shape[batch],
        "ReverseSequence: as many lengths as batch entries are needed",
    )
    check_lengths(b, lengths, x.shape[time])

    def compute(data: te.Tensor, count: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            length = count(i[batch]).astype("int64")
            source = tirx.Select(i[time] < length, length - ex.prim(1) - i[time], i[time])
            return data(*(source if axis == time else step for axis, step in enumerate(i)))

        return te.compute(data.shape, element, name="reverse_sequence")

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
        and ex.prod(shape) <= 4096
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
