"""Formulas over values as Python writes them: what decompositions of operators are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from tvm import relax

from compiler.ir.aten.memory import Ref
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import common, operand, scalar
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.ops.math import reduce as rd
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise import extremes
from compiler.ir.ops.pointwise import programs as pw
from compiler.ir.ops.shape import layout
from compiler.ir.shapes.extents import Extent


@dataclass(frozen=True, eq=False)
class Array:
    """A value with arithmetic: numbers beside it have its dtype, arrays have to."""

    b: Builder
    value: Value

    @property
    def dtype(self) -> str:
        """The elements'."""
        return self.value.dtype

    @property
    def shape(self) -> tuple[Extent, ...]:
        """The extents."""
        return self.value.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.value.shape)

    def beside(self, rhs: Any) -> Value:
        """Another array's value, or a number as one of this dtype."""
        return rhs.value if isinstance(rhs, Array) else scalar(self.b, rhs, self.dtype)

    def wrap(self, value: Value) -> Self:
        """Another value with the same arithmetic."""
        return type(self)(self.b, value)

    def __add__(self, rhs: Any) -> Self:
        return self.wrap(ew.add(self.b, self.value, self.beside(rhs)))

    def __radd__(self, rhs: Any) -> Self:
        return self.wrap(ew.add(self.b, self.beside(rhs), self.value))

    def __sub__(self, rhs: Any) -> Self:
        return self.wrap(ew.subtract(self.b, self.value, self.beside(rhs)))

    def __rsub__(self, rhs: Any) -> Self:
        return self.wrap(ew.subtract(self.b, self.beside(rhs), self.value))

    def __mul__(self, rhs: Any) -> Self:
        return self.wrap(ew.multiply(self.b, self.value, self.beside(rhs)))

    def __rmul__(self, rhs: Any) -> Self:
        return self.wrap(ew.multiply(self.b, self.beside(rhs), self.value))

    def __truediv__(self, rhs: Any) -> Self:
        return self.wrap(ew.divide(self.b, self.value, self.beside(rhs)))

    def __rtruediv__(self, rhs: Any) -> Self:
        return self.wrap(ew.divide(self.b, self.beside(rhs), self.value))

    def __neg__(self) -> Self:
        return self.wrap(ew.unary(self.b, self.value, relax.op.negative, numpy=np.negative))

    def __abs__(self) -> Self:
        return self.wrap(ew.unary(self.b, self.value, relax.op.abs, numpy=np.abs))

    def __lt__(self, rhs: Any) -> Self:
        return self.compare("less", rhs)

    def __le__(self, rhs: Any) -> Self:
        return self.compare("less_equal", rhs)

    def __gt__(self, rhs: Any) -> Self:
        return self.compare("greater", rhs)

    def __ge__(self, rhs: Any) -> Self:
        return self.compare("greater_equal", rhs)

    def compare(self, name: str, rhs: Any) -> Self:
        """Compare as `elementwise.compare` does, `equal` and `not_equal` too."""
        return self.wrap(ew.compare(self.b, self.value, self.beside(rhs), name))

    def __and__(self, rhs: Any) -> Self:
        return self.wrap(
            ew.binary(
                self.b,
                self.value,
                self.beside(rhs),
                relax.op.logical_and,
                numpy=np.logical_and,
            )
        )

    def __invert__(self) -> Self:
        return self.wrap(ew.unary(self.b, self.value, relax.op.logical_not, numpy=np.logical_not))

    def exp(self) -> Self:
        """e to the power of it."""
        return self.wrap(ew.unary(self.b, self.value, relax.op.exp, numpy=np.exp))

    def log(self) -> Self:
        """The natural logarithm."""
        return self.wrap(ew.unary(self.b, self.value, relax.op.log, numpy=np.log))

    def sqrt(self) -> Self:
        """The square root."""
        return self.wrap(ew.unary(self.b, self.value, relax.op.sqrt, numpy=np.sqrt))

    def floor(self) -> Self:
        """The greatest integers that are not greater, of floats."""
        return self.wrap(ew.unary(self.b, self.value, relax.op.floor, numpy=np.floor))

    def power(self, exponent: Any) -> Self:
        """It to a power."""
        if exponent == 1 and not isinstance(exponent, Array):
            return self
        return self.wrap(
            ew.binary(self.b, self.value, self.beside(exponent), relax.op.power, numpy=np.power)
        )

    def at_least(self, bound: Any) -> Self:
        """The greater of it and a bound; a NaN stays."""
        return self.wrap(extremes.greater(self.b, self.beside(bound), self.value))

    def at_most(self, bound: Any) -> Self:
        """The lesser of it and a bound; a NaN stays."""
        return self.wrap(extremes.lesser(self.b, self.beside(bound), self.value))

    def map(self, name: str, function: Callable[..., Any], *others: Any) -> Self:
        """A function of the elements of floats, 16-bit ones computed in float32."""
        values = [self.value, *(self.beside(rhs) for rhs in others)]
        return self.wrap(pw.in_float(self.b, function, *values, name=name))

    def where(self, condition: Array, rhs: Any) -> Self:
        """It where a condition holds, else another array or number."""
        return self.wrap(ew.where(self.b, condition.value, self.value, self.beside(rhs)))

    def cast(self, dtype: str) -> Self:
        """It in another dtype."""
        return self.wrap(ew.cast(self.b, self.value, dtype))

    def reduce(self, kind: str, axes: Sequence[int] | None = None, keepdim: bool = False) -> Self:
        """Its sum, prod, mean, max or min over axes, over all where none are named; an extreme is
        NaN where an element is.
        """
        positions = list(range(self.rank)) if axes is None else list(axes)
        return self.wrap(
            rd.reduce(self.b, self.value, kind, positions, keepdim, keep_nan=kind in ("max", "min"))
        )

    def unsqueeze(self, *axes: int) -> Self:
        """It with axes of 1."""
        return self.wrap(layout.unsqueeze(self.b, self.value, axes))

    def squeeze(self, *axes: int) -> Self:
        """It without axes of 1."""
        return self.wrap(layout.squeeze(self.b, self.value, axes))

    def reshape(self, shape: Sequence[Extent]) -> Self:
        """The same elements in another shape."""
        return self.wrap(layout.reshape(self.b, self.value, shape))

    def transpose(self, order: Sequence[int]) -> Self:
        """Its axes in another order."""
        return self.wrap(layout.transpose(self.b, self.value, order))

    def slice(self, axis: int, start: Extent, stop: Extent) -> Self:
        """Part of an axis."""
        return self.wrap(layout.strided_slice(self.b, self.value, axis, start, stop, 1))


def neighbours(x: Array, axis: int) -> tuple[Array, Array]:
    """Every element along an axis but the first, and every one but the last."""
    later = x.slice(axis, 1, layout.INT64_MAX)
    earlier = x.slice(axis, 0, -1)
    if isinstance(earlier.value, Tensor):
        # The same extent by two formulas.
        earlier = x.wrap(x.b.adopt(earlier.value.expr, later.shape))
    return later, earlier


def argument(b: Builder, node: Node, name: str) -> Array:
    """A tensor argument."""
    return Array(b, node.value(name))


def optional(b: Builder, node: Node, name: str) -> Array | None:
    """A tensor argument, None where there is none."""
    value = node.optional(name)
    return None if value is None else Array(b, value)


def arguments(b: Builder, node: Node, *names: str) -> list[Array]:
    """Tensors and numbers among the arguments in their common dtype."""
    items = [node.get(name) for name in names]
    dtype = common(node, *items)
    return [Array(b, operand(b, node, item, dtype)) for item in items]


def is_tensor(node: Node, name: str) -> bool:
    """True if an argument is a tensor."""
    return isinstance(node.get(name, None), Ref)
