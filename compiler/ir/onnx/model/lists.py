"""ONNX's sequences during import: lists of tensors whose length is known, and stacks whose length
only run time knows. An optional value is its element, or None.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.shape import layout


@dataclass(frozen=True, eq=False)
class Items:
    """A list of known length; each tensor has a shape of its own."""

    values: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Stacked:
    """Equally shaped tensors, as many as the first axis of `tensor` is long: item i is
    tensor[i].
    """

    tensor: Value


Content: TypeAlias = Value | Items | Stacked
"""What a name stands for."""
Form: TypeAlias = "type[Stacked] | int | None"
"""How values make up a content: an int counts those of Items, None is a tensor."""


def flatten(contents: Sequence[Content]) -> tuple[list[Value], list[Form]]:
    """The tensors in contents, and what puts them together again."""
    values: list[Value] = []
    forms: list[Form] = []
    for content in contents:
        match content:
            case Items():
                values.extend(content.values)
                forms.append(len(content.values))
            case Stacked():
                values.append(content.tensor)
                forms.append(Stacked)
            case _:
                values.append(content)
                forms.append(None)
    return values, forms


def unflatten(values: Sequence[Value], forms: Sequence[Form]) -> list[Content]:
    """Inverse of `flatten`."""
    rest: Iterator[Value] = iter(values)
    return [_content(rest, form) for form in forms]


def _content(rest: Iterator[Value], form: Form) -> Content:
    if form is None:
        return next(rest)
    if isinstance(form, int):
        return Items(tuple(next(rest) for _ in range(form)))
    return Stacked(next(rest))


def stack_of(b: Builder, items: Items) -> Value | None:
    """The items along a new first axis, None unless there are some of one dtype and shape."""
    values = items.values
    if not values or not all(_alike(b, values[0], item) for item in values):
        return None
    return layout.concat(b, [layout.unsqueeze(b, item, [0]) for item in values], 0)


def _alike(b: Builder, left: Value, right: Value) -> bool:
    return (
        left.dtype == right.dtype
        and len(left.shape) == len(right.shape)
        and all(b.facts.same(p, q) is True for p, q in zip(left.shape, right.shape, strict=True))
    )
