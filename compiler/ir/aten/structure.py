"""Python values across a branch or a loop that only run time decides: what stays constant, and what
travels as tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from tvm import tirx
from tvm.ir import Expr as PrimExpr

from compiler.errors import ImportFailed
from compiler.ir.aten.memory import Cell, DictBox, ListBox, Memory, Parts, Ref, Slot, Stack
from compiler.ir.aten.node import Measured, describe
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


class Uninitialized:
    """A value that a program leaves unset, on a way that raises or returns early."""


UNSET = Uninitialized()


class Number(StrEnum):
    """Plain numbers, by the dtype they travel in."""

    INT = "int64"
    FLOAT = "float64"
    BOOL = "bool"


@dataclass(frozen=True)
class Constant:
    """The same value on every way."""

    value: Any


@dataclass(frozen=True)
class Array:
    """A tensor; `shape` is what it was where it was seen, None for an extent that only
    holds there.
    """

    dtype: str
    rank: int
    shape: tuple[Extent | None, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Scalar:
    """A number that travels as a tensor of rank 0."""

    number: Number


@dataclass(frozen=True)
class Growing:
    """A list that travels as the stack of its items, all of one dtype and rank."""

    item: Array


@dataclass(frozen=True)
class Group:
    """A tuple, or a list of a certain length."""

    items: tuple[Form, ...]
    listed: bool


Form: TypeAlias = "Constant | Array | Scalar | Growing | Group"


def form_of(memory: Memory, value: Any) -> Form:
    """How a value of the scope travels if it stays as it is."""
    if isinstance(value, Ref):
        tensor = memory.read(value)
        return Array(tensor.dtype, len(tensor.shape), tensor.shape)
    if isinstance(value, ListBox):
        return _listed(memory, memory.content(value))
    if isinstance(value, tuple):
        return Group(tuple(form_of(memory, item) for item in value), False)
    if isinstance(value, Measured):
        return Scalar(Number.FLOAT)
    if isinstance(value, DictBox):
        raise ImportFailed(
            "a dict crosses a branch or loop that only run time decides",
            reason="unsupported_control",
        )
    return Constant(value)


def _listed(memory: Memory, content: Any) -> Form:
    if isinstance(content, Stack):
        return Growing(Array(content.tensor.dtype, len(content.tensor.shape) - 1))
    if isinstance(content, Parts):
        raise ImportFailed(
            "a list whose length only run time knows crosses a branch or loop that only run time "
            "decides",
            reason="unsupported_control",
            hint=content.hint,
        )
    return Group(tuple(form_of(memory, item) for item in content), True)


def join(b: Builder, left: Form, right: Form) -> Form:
    """The form that serves both; raises ImportFailed where there is none."""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return _constants(b, left, right)
    for unset, known in ((left, right), (right, left)):
        if isinstance(unset, Constant) and unset.value is UNSET:
            return known
        if (
            isinstance(unset, Constant)
            and isinstance(known, Scalar)
            and kind_of(unset.value) is known.number
        ):
            return known
    if left == right:
        return left
    if isinstance(left, Group) and isinstance(right, Group) and left.listed == right.listed:
        if len(left.items) == len(right.items):
            return Group(
                tuple(join(b, p, q) for p, q in zip(left.items, right.items, strict=True)),
                left.listed,
            )
        if left.listed:
            return _growing(b, [*left.items, *right.items])
    for stack, group in ((left, right), (right, left)):
        if isinstance(stack, Growing) and isinstance(group, Group) and group.listed:
            return _growing(b, [stack.item, *group.items])
    raise ImportFailed(
        f"a value is {_shown(left)} on one way and {_shown(right)} on another, and only run time "
        "knows which is taken",
        reason="unsupported_control",
        hint="fix the argument that decides it with --const",
    )


def _growing(b: Builder, items: Sequence[Form]) -> Form:
    joined = items[0]
    for item in items[1:]:
        joined = join(b, joined, item)
    if not isinstance(joined, Array):
        raise ImportFailed(
            f"a list that grows holds {_shown(joined)}, only tensors are supported",
            reason="unsupported_control",
        )
    return Growing(joined)


def _constants(b: Builder, left: Constant, right: Constant) -> Form:
    p, q = left.value, right.value
    if p is UNSET or q is UNSET:
        known = q if p is UNSET else p
        return Scalar(kind_of(known)) if isinstance(known, PrimExpr) else Constant(known)
    numbers = kind_of(p), kind_of(q)
    if numbers[0] is not None and numbers[0] is numbers[1]:
        equal = (
            b.facts.same(p, q) is True
            if numbers[0] is Number.INT
            else not isinstance(p, PrimExpr) and not isinstance(q, PrimExpr) and p == q
        )
        return left if equal else Scalar(numbers[0])
    if type(p) is type(q) and p == q:
        return left
    raise ImportFailed(
        f"a value is {describe(p)} on one way and {describe(q)} on another, and only run time "
        "knows which is taken",
        reason="unsupported_control",
        hint="fix the argument that decides it with --const",
    )


def kind_of(value: Any) -> Any:
    """The kind of a plain number, None for anything else."""
    if isinstance(value, Measured):
        return Number.FLOAT
    if isinstance(value, PrimExpr):
        dtype = value.ty.dtype
        return (
            Number.BOOL
            if dtype == "bool"
            else Number.INT
            if dtype.startswith("int")
            else Number.FLOAT
        )
    return {bool: Number.BOOL, int: Number.INT, float: Number.FLOAT}.get(type(value))


def _shown(form: Form) -> str:
    match form:
        case Constant(value):
            return describe(value)
        case Array(dtype, rank, _):
            return f"a {dtype} tensor of rank {rank}"
        case Scalar(number):
            return f"a number ({number})"
        case Growing(_):
            return "a growing list"
        case Group(items, listed):
            return f"a {'list' if listed else 'tuple'} of {len(items)}"


def leaves(memory: Memory, form: Form, value: Any) -> list[Value]:
    """The tensors that carry a value of this form."""
    b = memory.builder
    match form:
        case Constant(_):
            return []
        case Array(dtype, _, shape):
            return [_anything(b, dtype, shape) if value is UNSET else memory.read(value)]
        case Scalar(number):
            return [scalar_tensor(b, value, number)]
        case Growing(item):
            return [stack_items(memory, value, item)]
        case Group(items, _):
            content = (
                (UNSET,) * len(items)
                if value is UNSET
                else memory.content(value)
                if isinstance(value, ListBox)
                else value
            )
            return [
                leaf
                for inner, part in zip(items, content, strict=True)
                for leaf in leaves(memory, inner, part)
            ]


def _anything(b: Builder, dtype: str, shape: Sequence[Extent | None]) -> Value:
    """A tensor that nobody reads, of the shape that others have where it can be told."""
    return broadcast.expand(
        b,
        Known(np.zeros([1] * len(shape), np.dtype(dtype)), dtype),
        [0 if extent is None else extent for extent in shape],
    )


def outside(b: Builder, form: Form, dims: set[Any]) -> Form:
    """The form without those extents that are not made of `dims` alone."""
    match form:
        case Array(dtype, rank, shape):
            return Array(
                dtype, rank, tuple(extent if _made_of(extent, dims) else None for extent in shape)
            )
        case Group(items, listed):
            return Group(tuple(outside(b, item, dims) for item in items), listed)
    return form


def _made_of(extent: Extent | None, dims: set[Any]) -> bool:
    return not isinstance(extent, PrimExpr) or all(
        var in dims for var in tirx.analysis.undefined_vars(extent)
    )


def scalar_tensor(b: Builder, value: Any, number: Number) -> Value:
    """A plain number as a tensor of rank 0."""
    if value is UNSET:
        value = 0
    if isinstance(value, Measured):
        return value.tensor
    return b.tensor(Known.of(value, number.value))


def stack_items(memory: Memory, value: Any, item: Array) -> Value:
    """A list as the stack of its items."""
    b = memory.builder
    content = () if value is UNSET else memory.content(value)
    if isinstance(content, Stack):
        return content.tensor
    if not content:
        return Known(np.zeros([0] * (item.rank + 1), np.dtype(item.dtype)), item.dtype)
    return layout.concat(b, [layout.unsqueeze(b, memory.hold(part), [0]) for part in content], 0)


def rebuild(memory: Memory, form: Form, tensors: Iterator[Value]) -> Any:
    """The value of a form from the tensors that carry it, in cells of its own."""
    b = memory.builder
    match form:
        case Constant(value):
            return value
        case Array(_, _, _):
            return memory.ref(next(tensors))
        case Scalar(number):
            return number_of(b, next(tensors), number)
        case Growing(_):
            return memory.cell(Stack(next(tensors)), ListBox)
        case Group(items, listed):
            rebuilt = tuple(rebuild(memory, item, tensors) for item in items)
            return memory.cell(rebuilt, ListBox) if listed else rebuilt


def number_of(b: Builder, tensor: Value, number: Number) -> Any:
    """The plain number in a tensor of one element; floats that only run time knows stay tensors."""
    if number is Number.FLOAT and not isinstance(tensor, Known):
        return Measured(ew.cast(b, layout.reshape(b, tensor, []), "float64"))
    return ex.plain(b.known_integers(tensor, "number").scalars()[0])


def restore(memory: Memory, form: Form, cell: Cell, tensors: Iterator[Value]) -> None:
    """Write into a cell what a branch or loop left in it."""
    rebuilt = rebuild(memory, form, tensors)
    if not isinstance(cell, Slot):
        rebuilt = memory.read(rebuilt) if isinstance(rebuilt, Ref) else rebuilt.value
    memory.write(cell, rebuilt)


def content_form(memory: Memory, cell: Cell) -> Form:
    """The form of what a cell holds."""
    content = memory.content(cell)
    if isinstance(cell, ListBox):
        return _listed(memory, content)
    if isinstance(cell, DictBox):
        raise ImportFailed(
            "a dict is changed in a branch or loop that only run time decides",
            reason="unsupported_control",
        )
    return (
        form_of(memory, content)
        if isinstance(cell, Slot)
        else Array(content.dtype, len(content.shape))
    )


def content_leaves(memory: Memory, form: Form, cell: Cell) -> list[Value]:
    """The tensors that carry what a cell holds."""
    if isinstance(cell, ListBox):
        return leaves(memory, form, cell)
    content = memory.content(cell)
    return leaves(memory, form, content) if isinstance(cell, Slot) else [content]


def cells_of(value: Any) -> list[Cell]:
    """The cells of the tensors in a value."""
    if isinstance(value, Ref):
        return [value.cell]
    content = value.value if isinstance(value, ListBox) else value
    return (
        [cell for item in content for cell in cells_of(item)] if isinstance(content, tuple) else []
    )
