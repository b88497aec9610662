"""Tensors from sizes and numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te

from compiler.ir.aten.dtypes import DEFAULT_FLOAT
from compiler.ir.aten.memory import ListBox, Ref
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import operand, scalar
from compiler.ir.aten.registry import op, plain, refuse
from compiler.ir.aten.structure import Number, kind_of
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.math import division, windows
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def fill_with(b: Builder, shape: Sequence[Extent], value: Value) -> Value:
    """A tensor of one value."""
    return broadcast.expand(b, layout.reshape(b, value, [1] * len(shape)), shape)


def _full(b: Builder, node: Node, shape: Sequence[Extent], value: Any, default: str) -> Value:
    dtype = node.dtype("dtype", default)
    return fill_with(b, shape, operand(b, node, value, dtype))


def _like(node: Node) -> tuple[tuple[Extent, ...], str]:
    x = node.value("self")
    return x.shape, x.dtype


@op("zeros", "empty")
def zeros(b: Builder, node: Node) -> Value:
    """Zeros; memory that torch leaves unset is zero too."""
    return _full(b, node, node.sizes("size"), 0, DEFAULT_FLOAT)


@op("ones")
def ones(b: Builder, node: Node) -> Value:
    """Ones."""
    return _full(b, node, node.sizes("size"), 1, DEFAULT_FLOAT)


@op("full")
def full(b: Builder, node: Node) -> Value:
    """One value everywhere; its kind decides the dtype where none is given."""
    value = node.get("fill_value")
    return _full(b, node, node.sizes("size"), value, _natural(kind_of(value)))


def _natural(number: Number | None) -> str:
    """The dtype of a tensor made from a plain number."""
    return {Number.BOOL: "bool", Number.INT: "int64"}.get(number, DEFAULT_FLOAT)  # type: ignore[arg-type]


@op("zeros_like", "empty_like")
def zeros_like(b: Builder, node: Node) -> Value:
    """Zeros of self's shape."""
    shape, dtype = _like(node)
    return _full(b, node, shape, 0, dtype)


@op("ones_like")
def ones_like(b: Builder, node: Node) -> Value:
    """Ones of self's shape."""
    shape, dtype = _like(node)
    return _full(b, node, shape, 1, dtype)


@op("full_like")
def full_like(b: Builder, node: Node) -> Value:
    """One value in self's shape."""
    shape, dtype = _like(node)
    return _full(b, node, shape, node.get("fill_value"), dtype)


@op("new_zeros", "new_empty")
def new_zeros(b: Builder, node: Node) -> Value:
    """Zeros of self's dtype."""
    return _full(b, node, node.sizes("size"), 0, node.value("self").dtype)


@op("new_ones")
def new_ones(b: Builder, node: Node) -> Value:
    """Ones of self's dtype."""
    return _full(b, node, node.sizes("size"), 1, node.value("self").dtype)


@op("new_full")
def new_full(b: Builder, node: Node) -> Value:
    """One value in self's dtype."""
    return _full(b, node, node.sizes("size"), node.get("fill_value"), node.value("self").dtype)


@op("fill")
def fill(b: Builder, node: Node) -> Value:
    """Self with every element replaced by a value."""
    shape, dtype = _like(node)
    return fill_with(b, shape, operand(b, node, node.get("value"), dtype))


@op("zero")
def zero(b: Builder, node: Node) -> Value:
    """Self with every element zero."""
    shape, dtype = _like(node)
    return fill_with(b, shape, scalar(b, 0, dtype))


@op("arange", "range")
def arange(b: Builder, node: Node) -> Value:
    """start, start + step, ... up to end, exclusive; integers stay integers."""
    if node.kind == "aten::range":
        node.fail(
            "range includes its end, which is not supported",
            reason="unsupported_form",
            hint="use arange",
        )
    start, step = node.get("start", 0), node.get("step", 1)
    end = node.get("end")
    start, step, end = (
        node.memory.read(item) if isinstance(item, Ref) else item for item in (start, step, end)
    )
    items = [item.scalars()[0] if isinstance(item, Known) else item for item in (start, step, end)]
    integral = all(kind_of(item) is Number.INT for item in items)
    if not integral:
        return _of_floats(b, node, items)
    return integer_range(b, items[0], items[2], items[1], node.dtype("dtype", "int64"))


def _of_floats(b: Builder, node: Node, items: Sequence[Any]) -> Value:
    if not all(isinstance(item, (int, float)) for item in items):
        start, step, end = (
            ew.cast(b, item, "float64") if isinstance(item, Tensor) else scalar(b, item, "float64")
            for item in items
        )
        return ew.cast(
            b,
            windows.float_range(b, start, end, step, "float64"),
            node.dtype("dtype", DEFAULT_FLOAT),
        )
    start, step, end = items
    return Known(
        np.arange(start, end, step).astype(np.dtype(node.dtype("dtype", DEFAULT_FLOAT))),
        node.dtype("dtype", DEFAULT_FLOAT),
    )


def integer_range(b: Builder, start: Extent, end: Extent, step: Extent, dtype: str) -> Value:
    """The integers from start up to end, exclusive, in steps."""
    f = b.facts
    start, end, step = (f.simplify(item) for item in (start, end, step))
    if all(isinstance(item, int) for item in (start, end, step)):
        return Known(np.arange(start, end, step).astype(np.dtype(dtype)), dtype)
    up = f.decide(ex.greater(step, 0))
    if up is None:
        b.require(ex.greater(step, 0), "a range whose step only run time knows must count up")
    span, stride = (
        (ex.sub(start, end), ex.sub(0, step)) if up is False else (ex.sub(end, start), step)
    )
    b.require(ex.greater_equal(span, 0), f"a range from {start} to {end} in steps of {step}")
    (count,) = b.extents([ex.ceildiv(span, stride)], "range")
    return b.te(
        lambda: te.compute(
            [ex.prim(count)],
            lambda i: (ex.prim(start) + i * ex.prim(step)).astype(dtype),
            name="arange",
        ),
        name="arange",
    )


@op("linspace")
def linspace(b: Builder, node: Node) -> Value:
    """`steps` numbers from start to end, both included."""
    dtype = node.dtype("dtype", DEFAULT_FLOAT)
    if isinstance(node.get("start"), Ref) or isinstance(node.get("end"), Ref):
        return _between(b, node, dtype)
    start, end, steps = node.float("start"), node.float("end"), node.size("steps")
    if isinstance(steps, int):
        return Known(np.linspace(start, end, steps).astype(np.dtype(dtype)), dtype)
    index = ew.cast(b, integer_range(b, 0, steps, 1, "int64"), dtype)
    divisor = ew.cast(b, Known.of(b.facts.simplify(ex.maximum(ex.sub(steps, 1), 1))), dtype)
    return ew.add(
        b,
        scalar(b, start, dtype),
        division.divide(b, ew.multiply(b, index, scalar(b, end - start, dtype)), divisor),
    )


@op("logspace")
def logspace(b: Builder, node: Node) -> Value:
    """Powers of `base`, the exponents evenly spaced from start to end."""
    dtype = node.dtype("dtype", DEFAULT_FLOAT)
    exponents = _between(b, node, "float64")
    base = scalar(b, node.get("base", 10.0), "float64")
    powers = ew.binary(b, base, exponents, relax.op.power, numpy=np.power)
    return ew.cast(b, powers, dtype)


def _between(b: Builder, node: Node, dtype: str) -> Value:
    """`linspace` of numbers or tensors: the first half counted from the start, the second from the
    end.
    """
    steps = node.int("steps")
    work = dtype if ew.is_float(dtype) else "float64"
    start, end = (
        layout.reshape(b, operand(b, node, node.get(name), work), []) for name in ("start", "end")
    )
    positions = np.arange(steps)
    early = Known.of(positions < (steps + 1) // 2, "bool")
    forth = Known.of(positions / max(steps - 1, 1), work)
    back = Known.of((steps - 1 - positions) / max(steps - 1, 1), work)
    span = ew.subtract(b, end, start)
    first = ew.add(b, start, ew.multiply(b, span, forth))
    second = ew.subtract(b, end, ew.multiply(b, span, back))
    return ew.cast(b, ew.where(b, early, first, second), dtype)


@op("eye")
def eye(b: Builder, node: Node) -> Value:
    """The identity matrix."""
    rows = node.size("n")
    return indexing.eye(b, rows, node.size("m", rows), 0, node.dtype("dtype", DEFAULT_FLOAT))


@plain("tensor", "as_tensor", "scalar_tensor")
def tensor(b: Builder, node: Node) -> Value:
    """A tensor from a number or nested lists of them."""
    data = node.args[0]
    numbers = list(_numbers(node, data))
    default = (
        "bool"
        if numbers and all(n is Number.BOOL for n in numbers)
        else "int64"
        if numbers and Number.FLOAT not in numbers
        else DEFAULT_FLOAT
    )
    if node.kind == "aten::scalar_tensor":
        default = DEFAULT_FLOAT
    dtype = node.dtype("dtype", default)
    if not isinstance(data, (ListBox, tuple)):
        return scalar(b, data, dtype)
    return _array(b, node, data, dtype)


def _numbers(node: Node, data: Any) -> Any:
    if isinstance(data, (ListBox, tuple)):
        for item in node.memory.content(data) if isinstance(data, ListBox) else data:
            yield from _numbers(node, item)
    elif not isinstance(data, Ref):
        yield kind_of(data)


def _array(b: Builder, node: Node, data: Any, dtype: str) -> Value:
    items = node.memory.content(data) if isinstance(data, ListBox) else data
    if not items:
        return Known(np.zeros(0, np.dtype(dtype)), dtype)
    parts = [
        _array(b, node, item, dtype)
        if isinstance(item, (ListBox, tuple))
        else operand(b, node, item, dtype)
        for item in items
    ]
    return layout.concat(b, [layout.unsqueeze(b, part, [0]) for part in parts], 0)


@op("tensor", "as_tensor")
def tensor_of_tensor(b: Builder, node: Node) -> Value:
    """A copy of a tensor."""
    x = node.memory.read(node.args[0])
    return ew.cast(b, x, node.dtype("dtype", x.dtype))


@plain("prim::NumToTensor")
def number_to_tensor(b: Builder, node: Node) -> Value:
    """A number as a tensor of rank 0, of the dtype that its kind has."""
    number = kind_of(node.args[0])
    if number is None:
        node.fail("its argument is not a number", reason="unsupported_form")
    return scalar(b, node.args[0], "float32" if number is Number.FLOAT else number.value)


_RANDOM = (
    "rand",
    "randn",
    "randint",
    "rand_like",
    "randn_like",
    "randint_like",
    "randperm",
    "bernoulli",
    "multinomial",
    "normal",
    "uniform",
    "normal_",
    "uniform_",
    "bernoulli_",
)
refuse(*_RANDOM, why="random numbers differ from run to run, which a compiled model does not")
