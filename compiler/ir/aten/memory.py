"""Values that a TorchScript program can change in place: cells with a journal of writes, and
tensors as views of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from compiler.errors import ImportFailed
from compiler.ir.aten import positions
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.shapes.extents import Extent

Step = Callable[[Builder, Value], Value]
"""How a view follows from what it is a view of."""
Bounds = Callable[[Extent, Extent], tuple[Extent, Extent]]
"""Of a position and the number of parts, where that part of an axis begins and ends, as a slice has
them.
"""


@dataclass(frozen=True)
class Unsure:
    """The content of a cell after something was written that may or may not have been the same
    memory.
    """

    why: str


@dataclass(eq=False)
class Cell:
    """A place that holds a tensor, the items of a list or of a dict, or a module's attribute.

    serial: orders by creation; copied: a stack has a copy of it where the program's list has the
    tensor itself; in_order: the elements lie in memory one after the other, as those of a caller's
    array do.
    """

    value: Any
    serial: int
    version: int = 0
    twins: list[Cell] = field(default_factory=list)
    copied: bool = False
    in_order: bool = False


class ListBox(Cell):
    """A Python list: its value is a tuple of items, a Stack or Parts."""


class DictBox(Cell):
    """A Python dict: its value is a dict that is replaced, never changed."""


class Slot(Cell):
    """An attribute of a module: its value is one of the scope's."""


@dataclass(frozen=True, eq=False)
class Stack:
    """A list of equally shaped tensors whose length only run time knows: item i is tensor[i]."""

    tensor: Value

    @property
    def length(self) -> Extent:
        """How many items there are."""
        return self.tensor.shape[0]

    @property
    def hint(self) -> str:
        """Advice where a list of a certain length is needed."""
        return "stack it into one tensor"


@dataclass(frozen=True, eq=False)
class Parts:
    """A list of consecutive parts of an axis, all of it, whose number only run time knows.

    hint: which declaration makes the number certain.
    """

    source: Ref
    axis: int
    length: Extent
    bounds: Bounds
    hint: str


@dataclass(eq=False)
class Ref:
    """A tensor as the program holds it: a cell, seen through views.

    writable: False where elements may overlap or are those of a stack; number: it was a plain
    number when the program was traced.
    """

    cell: Cell
    steps: tuple[Step, ...] = ()
    writable: bool = True
    seen: tuple[int, Value] | None = None
    number: bool = False


class Memory:
    """All cells of one import, and who writes to them."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._journals: list[dict[Cell, Any]] = []
        self.serial = 0
        self.pushed: list[Cell] = []

    def cell(self, value: Any, kind: type[Cell] = Cell) -> Any:
        """A new cell."""
        self.serial += 1
        return kind(value, self.serial)

    def ref(self, value: Value) -> Ref:
        """A tensor of its own."""
        return Ref(self.cell(value), (), True, (0, value))

    def view(self, source: Ref, value: Value, step: Step, overlaps: bool = False) -> Ref:
        """A view of `source`, whose value now is `value`."""
        return Ref(
            source.cell,
            (*source.steps, step),
            source.writable and not overlaps,
            (source.cell.version, value),
        )

    def relate(self, source: Ref, value: Value) -> Ref:
        """A tensor that may be a view of `source` or a copy: writing to either makes the other
        unreadable.
        """
        copy = self.ref(value)
        link(copy.cell, source.cell)
        return copy

    def argument(self, value: Value) -> Ref:
        """A tensor that the caller gives: its elements lie in memory in their order."""
        ref = self.ref(value)
        ref.cell.in_order = True
        return ref

    def item(self, value: Value) -> Ref:
        """A tensor read from a stack: where the program would change the list's item, there is only
        a copy.
        """
        return Ref(self.cell(value), (), False, (0, value))

    def hold(self, ref: Ref) -> Value:
        """The tensor as it is now, for a stack; changing it in place from here on is an error."""
        ref.cell.copied = True
        self.pushed.append(ref.cell)
        return self.read(ref)

    def read(self, ref: Ref) -> Value:
        """The tensor as it is now; raises ImportFailed where that cannot be told."""
        if ref.seen is not None and ref.seen[0] == ref.cell.version:
            return ref.seen[1]
        value: Value = self.content(ref.cell)
        for step in ref.steps:
            value = step(self.builder, value)
        if not self._journals:
            ref.seen = (ref.cell.version, value)
        return value

    @staticmethod
    def content(cell: Cell) -> Any:
        """The content of a cell; raises ImportFailed where that cannot be told."""
        if isinstance(cell.value, Unsure):
            raise ImportFailed(
                cell.value.why,
                reason="unsupported_mutation",
                hint="write out of place: y = x + 1, not x += 1",
            )
        return cell.value

    def write(self, cell: Cell, value: Any) -> None:
        """Replace what a cell holds."""
        if cell.copied or any(twin.copied for twin in cell.twins):
            raise ImportFailed(
                "a tensor changes in place that is also in a list whose length only run time knows",
                reason="unsupported_mutation",
                hint="append a clone()",
            )
        for twin in cell.twins:
            self._set(
                twin,
                Unsure(
                    "a tensor was changed in place that may or may not share its memory with one "
                    "read here"
                ),
            )
        self._set(cell, value)

    def _set(self, cell: Cell, value: Any) -> None:
        for journal in self._journals:
            journal.setdefault(cell, cell.value)
        cell.value = value
        cell.version += 1

    def spoil(self, cell: Cell, why: str) -> None:
        """Make a cell unreadable."""
        self._set(cell, Unsure(why))

    def store(self, ref: Ref, value: Value) -> None:
        """Write a tensor of the ref's shape and dtype in place, through its views."""
        if not ref.writable:
            raise ImportFailed(
                "a tensor is changed in place whose elements overlap, or that is an item of a "
                "list of a length only run time knows",
                reason="unsupported_mutation",
                hint="clone() it first",
            )
        if not ref.steps:
            self.write(ref.cell, value)
            return
        base = self.content(ref.cell)
        indices = positions.of(self.builder, base)
        for step in ref.steps:
            indices = step(self.builder, indices)
        self.write(ref.cell, positions.put(self.builder, base, indices, value))

    @contextmanager
    def trial(self) -> Iterator[dict[Cell, Any]]:
        """Writes inside are journaled (cell to what it held) and undone at the end."""
        journal: dict[Cell, Any] = {}
        self._journals.append(journal)
        try:
            yield journal
        finally:
            self._journals.pop()
            for cell, value in journal.items():
                cell.value = value
                cell.version += 1


def link(left: Cell, right: Cell) -> None:
    """Note that two cells may be one piece of memory."""
    if left is not right and left not in right.twins:
        group = [left, *left.twins], [right, *right.twins]
        for a in group[0]:
            for b in group[1]:
                a.twins.append(b)
                b.twins.append(a)
