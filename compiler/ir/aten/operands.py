"""Operands of elementwise operators: tensors and plain numbers brought to the dtype that torch
gives the result.
"""

from typing import Any

import numpy as np
from tvm.ir import Expr as PrimExpr

from compiler.ir.aten.dtypes import DEFAULT_FLOAT, category, result_type
from compiler.ir.aten.memory import Ref
from compiler.ir.aten.node import Measured, Node
from compiler.ir.aten.structure import Number, kind_of
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew


def scalar(b: Builder, value: Any, dtype: str) -> Value:
    """A plain number as a value of rank 0."""
    if isinstance(value, Measured):
        return ew.cast(b, value.tensor, dtype)
    if isinstance(value, PrimExpr):
        number = kind_of(value)
        return ew.cast(b, Known.of(value, number.value), dtype)
    return Known(np.asarray(value).astype(np.dtype(dtype)), dtype)


def operand(b: Builder, node: Node, item: Any, dtype: str) -> Value:
    """A tensor or number of the scope in a dtype."""
    return (
        ew.cast(b, node.memory.read(item), dtype)
        if isinstance(item, Ref)
        else scalar(b, item, dtype)
    )


def common(node: Node, *items: Any) -> str:
    """The dtype that torch gives an operation of these tensors and numbers."""
    tensors = [
        node.memory.read(item) for item in items if isinstance(item, Ref) and not item.number
    ]
    numbers = [kind_of(item) for item in items if not isinstance(item, Ref)]
    numbers += [
        Number(node.memory.read(item).dtype)
        for item in items
        if isinstance(item, Ref) and item.number
    ]
    if any(number is None for number in numbers):
        node.fail("an operand is neither a tensor nor a number", reason="unsupported_form")
    return result_type(
        [(tensor.dtype, len(tensor.shape)) for tensor in tensors],
        [number.value for number in numbers],
    )


def pair(
    b: Builder, node: Node, first: str = "self", second: str = "other", *, floating: bool = False
) -> tuple[Value, Value]:
    """Two operands in their common dtype; `floating` turns integers into the default float."""
    items = node.get(first), node.get(second)
    dtype = common(node, *items)
    if floating and category(dtype) < 2:
        dtype = DEFAULT_FLOAT
    return operand(b, node, items[0], dtype), operand(b, node, items[1], dtype)


def to_float(b: Builder, x: Value) -> Value:
    """Integers and bool as the default float, floats as they are."""
    return x if ew.is_float(x.dtype) else ew.cast(b, x, DEFAULT_FLOAT)
