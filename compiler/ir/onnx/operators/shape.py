"""ONNX operators on shapes and layout: those through which dims must stay symbolic."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
from tvm import te

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.model.dtypes import CARRIED, DTYPES, name_of
from compiler.ir.onnx.model.lists import Content
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.onnx.scope import known_of
from compiler.ir.ops.math import windows
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized import small_types
from compiler.ir.ops.shape import axes, indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.limits import end_of


@op("Constant")
def constant(b: Builder, node: Node) -> Value:
    """A tensor given as an attribute in any of its forms."""
    for name, dtype in (
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
        ("value_ints", "int64"),
    ):
        if name in node.attributes:
            return Known(np.asarray(node.attributes[name], np.dtype(dtype)), dtype)
    if "sparse_value" in node.attributes:
        from compiler.ir.onnx.scope import dense_of

        return dense_of(node.attributes["sparse_value"])
    if "value" not in node.attributes:
        node.fail("constants of strings are not supported", reason="dtype")
    return known_of(node.attributes["value"])


@op("Identity")
def identity(b: Builder, node: Node) -> list[Content | None]:
    """The input, whatever it is."""
    return [node.inputs[0]]


@op("Cast", since=6)
def cast(b: Builder, node: Node) -> Value:
    """Elements converted to the dtype `to`."""
    code = node.attr("to")
    if code not in CARRIED:
        node.fail(f"casting to {name_of(code)} is not supported", reason="dtype")
    return _cast(b, node, CARRIED[code])


@op("CastLike", since=15)
def cast_like(b: Builder, node: Node) -> Value:
    """Elements converted to the dtype of the second input."""
    return _cast(b, node, node.value(1).dtype)


def _cast(b: Builder, node: Node, dtype: str) -> Value:
    mode = node.attr("round_mode", "up")
    if mode not in ("up", "down", "nearest"):
        node.fail(f"unknown rounding mode {mode!r}", reason="attribute")
    saturate = bool(node.attr("saturate", 1))
    return small_types.cast(b, node.value(0), dtype, saturate=saturate, round_mode=mode)


@op("Shape")
def shape(b: Builder, node: Node) -> Value:
    """The shape, or its part from `start` to `end`."""
    extents = list(node.value(0).shape)[slice(node.attr("start", 0), node.attr("end", None))]
    return Known.of(extents if extents else np.zeros(0, np.int64), "int64")


@op("Size")
def size(b: Builder, node: Node) -> Value:
    """The number of elements, a scalar."""
    return Known.of(b.facts.simplify(ex.prod(node.value(0).shape)), "int64")


def axes_of(node: Node, index: int, rank: int) -> list[Extent] | None:
    """Axes given as an attribute (older opsets) or an input (newer), integers where import knows
    them; None when absent.
    """
    if "axes" in node.attributes:
        return [int(axis) for axis in node.attributes["axes"]]
    if not node.has(index):
        return None
    return node.known_integers(index, "axis", -rank, rank - 1).scalars()


def are_known(values: Sequence[Extent]) -> TypeGuard[Sequence[int]]:
    """Tell whether all of them are integers that import knows."""
    return all(isinstance(value, int) for value in values)


@op("Reshape", since=5)
def reshape(b: Builder, node: Node) -> Value:
    """0 keeps the input's extent (unless allowzero), -1 is what remains."""
    x = node.value(0)
    if isinstance(node.value(1), Tensor):
        elements = ex.prod(x.shape)
        limit_values(b, node, 1, 1, elements, elements=end_of(b.facts, elements))
    wanted = node.known_integers(1, "reshape").scalars()
    return layout.reshape(b, x, resolve_shape(b, x.shape, wanted, bool(node.attr("allowzero", 0))))


def resolve_shape(
    b: Builder, have: tuple[Extent, ...], wanted: list[Extent], allowzero: bool
) -> list[Extent]:
    """A reshape's target with its zeros and -1 worked out, at import or by an expression for run
    time.
    """
    f = b.facts
    extents: list[Extent] = []
    unknown: list[Extent | bool] = []
    for axis, extent in enumerate(wanted):
        keep = False if allowzero or axis >= len(have) else layout.settle(b, ex.equal(extent, 0))
        extents.append(f.simplify(ex.select(keep, have[axis] if axis < len(have) else 0, extent)))
        unknown.append(layout.settle(b, ex.equal(extent, -1)))
    if not any(flag is not False for flag in unknown):
        return extents
    if sum(flag is not False for flag in unknown) > 1:
        number = ex.total(ex.select(flag, 1, 0) for flag in unknown)
        b.require(ex.less_equal(number, 1), "Reshape: more than one extent is -1")
    factors_of_target = [
        ex.select(flag, 1, extent) for flag, extent in zip(unknown, extents, strict=True)
    ]
    total, rest = (
        f.simplify(ex.prod(factors)) for factors in _cancelled(b, have, factors_of_target)
    )
    left = _quotient(b, total, rest)
    return [
        f.simplify(ex.select(flag, left, extent))
        for flag, extent in zip(unknown, extents, strict=True)
    ]


def _cancelled(
    b: Builder, above: Sequence[Extent], below: Sequence[Extent]
) -> tuple[list[Extent], list[Extent]]:
    """The factors of a quotient without those on both sides: TVM does not see that a sum divides
    its multiples.
    """
    left, remaining = list(above), []
    for factor in below:
        match = next(
            (index for index, other in enumerate(left) if b.facts.same(factor, other) is True), None
        )
        if match is None:
            remaining.append(factor)
        else:
            left.pop(match)
    return left, remaining


def _quotient(b: Builder, total: Extent, rest: Extent) -> Extent:
    """total // rest; both sides of a Select are evaluated, so the divisor must not be 0."""
    if b.facts.same(rest, 0) is True:
        return 0
    divisor = rest if b.facts.decide(ex.greater_equal(rest, 1)) is True else ex.maximum(rest, 1)
    return b.facts.simplify(ex.floordiv(total, divisor))


@op("Transpose")
def transpose(b: Builder, node: Node) -> Value:
    """Axes permuted by `perm`, reversed without it."""
    x = node.value(0)
    return layout.transpose(b, x, node.attr("perm", list(range(len(x.shape)))[::-1]))


@op("Unsqueeze")
def unsqueeze(b: Builder, node: Node) -> Value:
    """Axes of extent 1 inserted."""
    positions = axes_of(node, 1, len(node.value(0).shape) + 1)
    if positions is None:
        node.fail("axes are required", reason="input")
    return (
        layout.unsqueeze(b, node.value(0), positions)
        if are_known(positions)
        else axes.unsqueeze(b, node.value(0), positions)
    )


@op("Squeeze")
def squeeze(b: Builder, node: Node) -> Value:
    """Axes of extent 1 removed."""
    positions = axes_of(node, 1, len(node.value(0).shape))
    return (
        layout.squeeze(b, node.value(0), positions)
        if positions is None or are_known(positions)
        else axes.squeeze(b, node.value(0), positions)
    )


@op("Flatten")
def flatten(b: Builder, node: Node) -> Value:
    """A matrix split at `axis`."""
    x = node.value(0)
    axis = node.attr("axis", 1)
    return layout.flatten(b, x, axis + len(x.shape) if axis < 0 else axis)


@op("Concat", since=4)
def concat(b: Builder, node: Node) -> Value:
    """Inputs joined along `axis`."""
    return layout.concat(
        b, [node.value(index) for index in range(len(node.inputs))], node.attr("axis")
    )


@op("Gather")
def gather(b: Builder, node: Node) -> Value:
    """Slices of the data along `axis` at the indices, which are checked."""
    data, indices = node.value(0), node.value(1)
    axis = layout.axis_of(node.attr("axis", 0), len(data.shape))
    limit_values(b, node, 1, 0, ex.sub(data.shape[axis], 1), from_end=True)
    if isinstance(indices, Known) and indices.symbolic and isinstance(data, Known):
        node.fail("a gather at a symbolic index of a shape", reason="data_dependent")
    return layout.take(b, data, indexing.check(b, indices, data.shape[axis]), axis)


@op("Slice", since=10)
def slice_inputs(b: Builder, node: Node) -> Value:
    """data[starts:ends:steps] on the axes."""
    starts, ends = (
        node.known_positions(index, name).scalars() for index, name in ((1, "start"), (2, "end"))
    )
    steps = (
        node.known_positions(4, "step", nonzero=True).scalars()
        if node.has(4)
        else [1] * len(starts)
    )
    along = axes_of(node, 3, len(node.value(0).shape))
    return _slice(b, node, along, starts, ends, steps)


@op("Slice", since=1)
def slice_attributes(b: Builder, node: Node) -> Value:
    """data[starts:ends] on the axes, all of them attributes."""
    starts = node.attr("starts")
    return _slice(b, node, node.attr("axes", None), starts, node.attr("ends"), [1] * len(starts))


def _slice(
    b: Builder,
    node: Node,
    declared: list[Extent] | None,
    starts: list[Extent],
    ends: list[Extent],
    steps: list[Extent],
) -> Value:
    value = node.value(0)
    along: list[Extent] = list(range(len(starts))) if declared is None else declared
    if not are_known(along) or any(b.facts.decide(ex.greater(step, 0)) is None for step in steps):
        return axes.slice_along(b, value, along, starts, ends, steps)
    for axis, start, end, step in zip(along, starts, ends, steps, strict=True):
        value = layout.strided_slice(b, value, axis, start, end, step)
    return value


@op("Expand", since=8)
def expand(b: Builder, node: Node) -> Value:
    """The input broadcast with a shape."""
    x = node.value(0)
    wanted = node.known_extents(1, "expand", 1).scalars()
    for axis, extent in enumerate(reversed(x.shape)):
        ends = (1, 4) if extent == 1 else (extent, extent)
        if axis < len(wanted):
            limit_values(b, node, 1, *ends, coordinate=len(wanted) - 1 - axis)
    return broadcast.expand(
        b, x, broadcast.joined_shape(b, x.shape, wanted, what="Expand's input and shape")
    )


@op("ConstantOfShape", since=9)
def constant_of_shape(b: Builder, node: Node) -> Value:
    """A tensor filled with one value."""
    fill = (
        known_of(node.attributes["value"])
        if "value" in node.attributes
        else Known(np.zeros(1, np.float32), "float32")
    )
    extents = node.known_extents(0, "extent").scalars()
    element = small_types.to_storage(Known(fill.data.reshape([1] * len(extents)), fill.dtype))
    return small_types.from_storage(broadcast.expand(b, element, extents, "fill"), fill.dtype)


@op("Range", since=11)
def arange(b: Builder, node: Node) -> Value:
    """start, start+delta, ... up to limit, exclusive."""
    dtype = node.value(0).dtype
    if ew.is_float(dtype):
        stash = DTYPES.get(node.attr("stash_type", 1), "float32")
        work = stash if dtype in ("float16", "bfloat16") else dtype
        return windows.float_range(b, node.value(0), node.value(1), node.value(2), work)
    start, limit, delta = (
        node.known_integers(index, name, nonzero=name == "delta").scalars()[0]
        for index, name in enumerate(("start", "limit", "delta"))
    )
    if all(isinstance(item, int) for item in (start, limit, delta)):
        return Known(np.arange(start, limit, delta, dtype=np.dtype(dtype)), dtype)
    count = _count(b, start, limit, delta)

    def number_at(i: Any) -> Any:
        return (ex.prim(start) + i * ex.prim(delta)).astype(dtype)

    return b.te(lambda: te.compute([ex.prim(count)], number_at, name="range"), name="range")


def _count(b: Builder, start: Extent, limit: Extent, delta: Extent) -> Extent:
    """How many steps of `delta` lead from start up to limit."""
    f = b.facts
    b.require(ex.not_equal(delta, 0), "Range: delta is zero")
    positive = f.decide(ex.greater(delta, 0))
    if positive is not None:
        span, step = (
            (ex.sub(limit, start), delta) if positive else (ex.sub(start, limit), ex.sub(0, delta))
        )
    else:
        span = ex.select(ex.greater(delta, 0), ex.sub(limit, start), ex.sub(start, limit))
        step = ex.maximum(ex.maximum(delta, ex.sub(0, delta)), 1)
    count = ex.ceildiv(span, step)
    if f.decide(ex.greater_equal(span, 0)) is not True:
        count = ex.maximum(count, 0)
    return b.extents([count], "range")[0]


@op("Split")
def split(b: Builder, node: Node) -> list[Value]:
    """The input cut along `axis` by sizes, or into equal parts."""
    x = node.value(0)
    axis = layout.axis_of(node.attr("axis", 0), len(x.shape))
    extent = x.shape[axis]
    if "split" in node.attributes:
        sizes = list(node.attributes["split"])
    elif node.has(1):
        limit_values(b, node, 1, 0, extent, total=end_of(b.facts, extent))
        sizes = node.known_extents(1, "split").scalars()
    else:
        parts = node.attr("num_outputs", len(node.proto.output))
        chunk = b.facts.simplify(ex.ceildiv(extent, parts))
        sizes = [chunk] * (parts - 1) + [b.facts.simplify(ex.sub(extent, ex.mul(chunk, parts - 1)))]
    return list(layout.split(b, x, axis, sizes))
