"""One TorchScript node as its handler sees it: arguments by their schema's names, and errors that
name the node.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm.ir import Expr as PrimExpr

from compiler.ir.aten.dtypes import dtype_of
from compiler.ir.aten.memory import ListBox, Memory, Parts, Ref, Stack
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.node_errors import NodeErrors
from compiler.ir.graph.origins import Origins
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent, spell
from compiler.ir.shapes.index_bounds import USUAL, Limit

if TYPE_CHECKING:
    from compiler.ir.aten.scope import Scope

_MISSING = object()


@dataclass(frozen=True, eq=False)
class Measured:
    """A number that only run time knows and that no shape follows from: a float tensor of
    rank 0.
    """

    tensor: Value


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A complex tensor as its two parts: what transforms give, and only some operators take."""

    real: Value
    imaginary: Value


@dataclass(frozen=True)
class Node(NodeErrors):
    """`raw` is torch's node; `args` are values of the scope: Ref, ListBox, DictBox, tuples,
    numbers, expressions, strings, None.
    """

    raw: Any
    kind: str
    args: tuple[Any, ...]
    names: tuple[str, ...]
    scope: Scope

    @property
    def memory(self) -> Memory:
        """Where tensors and lists are written."""
        return self.scope.memory

    @property
    def builder(self) -> Builder:
        """The builder of the function under construction."""
        return self.scope.builder

    @property
    def label(self) -> str:
        """The name of the node's first output."""
        return label_of(self.raw)

    @property
    def origin(self) -> str:
        """The operator and its first output: files keep no names of modules."""
        return f"{self.kind.rpartition('::')[2]} {self.label}"

    @property
    def origins(self) -> Origins:
        """The builder's."""
        return self.builder.origins

    @property
    def op(self) -> str:
        """The operator's qualified name, as `kind`."""
        return self.kind

    def has(self, name: str) -> bool:
        """True if the argument exists and is not None."""
        return name in self.names and self.args[self.names.index(name)] is not None

    def get(self, name: str, default: Any = _MISSING) -> Any:
        """An argument as it stands in the scope, `default` where this overload has none of that
        name.
        """
        if name in self.names:
            return self.args[self.names.index(name)]
        if default is _MISSING:
            self.fail(f"this overload has no argument {name!r}", reason="unsupported_form")
        return default

    def ref(self, name: str) -> Ref:
        """A tensor argument as the program holds it."""
        item = self.get(name)
        if not isinstance(item, Ref):
            self.fail(f"{name!r} is {_shown(item)}, not a tensor", reason="unsupported_form")
        return item

    def value(self, name: str) -> Value:
        """A tensor argument."""
        return self.memory.read(self.ref(name))

    def tensor(self, name: str) -> Tensor:
        """A tensor argument as a run-time tensor."""
        return self.builder.tensor(self.value(name))

    def optional(self, name: str) -> Value | None:
        """A tensor argument, None where it is None or this overload has none."""
        return self.value(name) if self.get(name, None) is not None else None

    def items(self, name: str) -> tuple[Any, ...]:
        """A list or tuple argument as the values in it."""
        item = self.get(name)
        content = self.memory.content(item) if isinstance(item, ListBox) else item
        if isinstance(content, (Stack, Parts)):
            self.fail(
                f"{name!r} is a list whose length only run time knows",
                reason="data_dependent",
                hint=content.hint,
            )
        if not isinstance(content, tuple):
            self.fail(f"{name!r} is {_shown(item)}, not a list", reason="unsupported_form")
        return content

    def values(self, name: str) -> list[Value]:
        """A list of tensors."""
        return [self.memory.read(item) for item in self.items(name)]

    def extent(self, name: str, default: Any = _MISSING) -> Extent:
        """An integer argument, symbolic or not."""
        return self.as_extent(self.get(name, default), name)

    def as_extent(self, item: Any, name: str) -> Extent:
        """An integer, also one that stands in a tensor of one element."""
        if isinstance(item, Ref):
            return self.builder.known_integers(self.memory.read(item), name).scalars()[0]  # type: ignore[return-value]
        item = ex.plain(item) if isinstance(item, PrimExpr) else item
        if not isinstance(item, (int, PrimExpr)):
            self.fail(f"{name!r} is {_shown(item)}, not an integer", reason="unsupported_form")
        return item

    def extents(self, name: str) -> list[Extent]:
        """A list of integers, symbolic or not; a single integer counts as a list of one."""
        size = self.get(name)
        if isinstance(size, (int, PrimExpr)):
            return [size]
        return [self.as_extent(item, name) for item in self.items(name)]

    def size(self, name: str, default: Any = _MISSING) -> Extent:
        """An integer argument that is an extent: every run checks one that import does not know."""
        self.limit(name, 0)
        return self.as_size(self.get(name, default), name)

    def sizes(self, name: str) -> list[Extent]:
        """A list of extents, as `size`; a single one counts as a list of one. Constants are left as
        they are, such as a -1 that has a meaning.
        """
        self.limit(name, 0)
        size = self.get(name)
        if isinstance(size, (int, PrimExpr)):
            return [self.as_size(size, name)]
        return [self.as_size(item, name) for item in self.items(name)]

    def position(self, name: str, default: Any = _MISSING) -> Extent:
        """An integer argument of either sign, as sample inputs are to have it, such as a bound of a
        slice.
        """
        self.limit(name, -USUAL)
        return self.extent(name, default)

    def limit(self, name: str, least: builtins.int) -> None:
        """State from where on sample inputs of a number are drawn."""
        if name in self.names:
            raw = list(self.raw.inputs())[self.names.index(name)]
            self.scope.model.indexed.append((raw, Limit(least, USUAL, usual=True)))

    def as_size(self, item: Any, name: str) -> Extent:
        """An extent that is a value of the scope."""
        if isinstance(item, Ref):
            known = self.builder.known_extents(self.memory.read(item), name)
            return known.scalars()[0]  # type: ignore[return-value]
        extent = self.as_extent(item, name)
        if isinstance(extent, PrimExpr):
            (extent,) = self.builder.extents([extent], name)
            self.builder.require_extent(extent, name)
        return extent

    def int(self, name: str, default: Any = _MISSING) -> int:
        """An integer argument that import must know, such as an axis."""
        number = self.builder.facts.simplify(self.extent(name, default))
        if not isinstance(number, int):
            self.fail(
                f"{name!r} is known only at run time",
                reason="data_dependent",
                hint="fix the argument that it comes from with --const",
            )
        return int(number)

    def ints(self, name: str) -> list[builtins.int]:
        """A list of integers that import must know."""
        numbers = [self.builder.facts.simplify(item) for item in self.extents(name)]
        if not all(isinstance(item, int) for item in numbers):
            self.fail(
                f"{name!r} is known only at run time",
                reason="data_dependent",
                hint="fix the argument that it comes from with --const",
            )
        return [int(item) for item in numbers]

    def float(self, name: str, default: Any = _MISSING) -> float:
        """A number that import must know."""
        number = self.get(name, default)
        if not isinstance(number, (int, float)):
            self.fail(f"{name!r} is known only at run time", reason="data_dependent")
        return float(number)

    def bool(self, name: str, default: Any = _MISSING) -> bool:
        """A flag that import must know; None counts as false."""
        flag = self.get(name, default)
        decided = self.builder.facts.decide(flag) if isinstance(flag, PrimExpr) else bool(flag)
        if decided is None:
            self.fail(
                f"{name!r} is known only at run time",
                reason="data_dependent",
                hint="fix the argument that it comes from with --const",
            )
        return decided

    def text(self, name: str, default: Any = _MISSING) -> str:
        """A string."""
        return str(self.get(name, default))

    def dtype(self, name: str, default: str) -> str:
        """A dtype argument, `default` where it is None."""
        code = self.get(name, None)
        return default if code is None else dtype_of(code)

    def axis(self, name: str, rank: builtins.int, default: Any = _MISSING) -> builtins.int:
        """An axis as a non-negative number; a tensor of rank 0 has one axis."""
        return self.as_axis(self.int(name, default), rank)

    def as_axis(self, axis: builtins.int, rank: builtins.int) -> builtins.int:
        """A number as a non-negative axis."""
        limit = max(rank, 1)
        if not -limit <= axis < limit:
            self.fail(f"axis {axis} is out of range for rank {rank}", reason="axis")
        return axis % limit

    def axes(self, name: str, rank: builtins.int) -> list[builtins.int] | None:
        """A list of axes as non-negative numbers, None where it is None or empty."""
        if not self.has(name):
            return None
        axes = [self.as_axis(axis, rank) for axis in self.ints(name)]
        return axes or None

    def describe_inputs(self) -> list[str]:
        """Describe every argument, for errors (see NodeErrors)."""
        return [describe(item) for item in self.args]


def label_of(raw: Any) -> str:
    """The name of a node's first output, or its kind."""
    return next((f"%{output.debugName()}" for output in raw.outputs()), str(raw.kind()))


def describe(item: Any) -> str:
    """A value of the scope in a few words."""
    if isinstance(item, Ref):
        return describe(item.seen[1]) if item.seen else "tensor"
    if isinstance(item, (Known, Tensor)):
        return f"{item.dtype}[{','.join(map(spell, item.shape))}]"
    if isinstance(item, ListBox):
        return "list" if isinstance(item.value, (Stack, Parts)) else f"list of {_count(item.value)}"
    return _shown(item)


def _count(content: Any) -> str:
    return str(len(content)) if isinstance(content, Sequence) else "unknown"


def _shown(item: Any) -> str:
    if isinstance(item, PrimExpr):
        text = spell(item)
    else:
        plain = isinstance(item, (int, float, str, type(None)))
        text = str(item) if plain else type(item).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
