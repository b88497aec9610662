"""A graph as it is drawn: values whose extents are known at every point that it will be run at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Extent = int | tuple[int, ...]
"""A fixed extent, or one that dims decide: its value at every point."""

CHANNELS = (1, 3, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65)
"""Around the edges of every kernel's tiles."""
MOST_ELEMENTS = 1 << 18
MOST_RANK = 5


class Inapplicable(Exception):
    """An operator finds nothing here that it could be applied to."""


def each(function: Callable[..., int], *extents: Extent) -> Extent:
    """The function of extents, at every point where one of them is open."""
    opened = [extent for extent in extents if isinstance(extent, tuple)]
    if not opened:
        return function(*extents)
    points = len(opened[0])
    columns = [extent if isinstance(extent, tuple) else (extent,) * points for extent in extents]
    return tuple(function(*index) for index in zip(*columns, strict=True))


def least(extent: Extent) -> int:
    return min(extent) if isinstance(extent, tuple) else extent


def most(extent: Extent) -> int:
    return max(extent) if isinstance(extent, tuple) else extent


@dataclass(frozen=True)
class Value:
    """A float32 tensor of the graph."""

    name: str
    shape: tuple[Extent, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def fix_extents(self, axis: int) -> int:
        """The extent of an axis that no dim decides, at least 1; raises Inapplicable."""
        extent = self.shape[axis]
        if isinstance(extent, tuple) or not extent:
            raise Inapplicable
        return extent

    def fill_inputs(self, *axes: int) -> None:
        """Raises Inapplicable where one of the axes may be empty."""
        if any(least(self.shape[axis]) < 1 for axis in axes):
            raise Inapplicable


@dataclass
class Draft:
    """quantized: whether values are quantized on the way; inputs: the axes of the graph's
    inputs, names of dims or extents, to which operators may add.
    """

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    quantized: bool = False
    inputs: dict[str, tuple[str | int, ...]] = field(default_factory=dict)
    _count: int = 0

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def choose(self, options: Sequence[Any]) -> Any:
        return options[int(self.random.integers(len(options)))]

    def channels(self) -> int:
        return int(self.choose(CHANNELS))

    def fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def pick(self, *ranks: int) -> Value:
        """One of the values of these ranks (any where none is named), rather a late one."""
        results = [value for value in self.values if not ranks or value.rank in ranks]
        if not results:
            raise Inapplicable
        back = min(int(self.random.geometric(0.5)), len(results))
        return results[-back]

    def give_input(self, *ranks: int) -> Value:
        """An input of the graph of one of these ranks: its numbers are the same for every engine,
        so that operators may be applied which are not continuous.
        """
        created = {name for node in self.nodes for name in node.output}
        results = [
            value
            for value in self.values
            if value.name not in created and (not ranks or value.rank in ranks)
        ]
        if not results:
            raise Inapplicable
        return self.choose(results)

    def axis(self, value: Value) -> int:
        if not value.rank:
            raise Inapplicable
        return int(self.random.integers(value.rank))

    def constant(self, array: Any, dtype: str = "float32") -> str:
        name = self.fresh("c")
        self.constants[name] = numpy_helper.from_array(np.asarray(array, dtype), name)
        return name

    def weight(self, *shape: int, fan: int | None = None) -> str:
        """Normal numbers that keep the size of a signal in sums of `fan` products."""
        scale = (fan or 1) ** -0.5
        return self.constant(self.random.standard_normal(shape) * scale)

    def node(self, op: str, inputs: Sequence[str], count: int = 1, **attributes: Any) -> list[str]:
        """Adds a node; returns the names of its outputs."""
        outputs = [self.fresh("t") for _ in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), outputs, outputs[0], **attributes))
        return outputs

    def keep(self, name: str, shape: Sequence[Extent]) -> Value:
        """A value that later operators may take; raises Inapplicable for one that is too large."""
        value = Value(name, tuple(shape))
        size = each(lambda *extents: prod(extents), *value.shape) if value.shape else 1
        if value.rank > MOST_RANK or most(size) > MOST_ELEMENTS or least(size) < 0:
            raise Inapplicable
        self.values.append(value)
        return value

    def apply(
        self, op: str, inputs: Sequence[str], shape: Sequence[Extent], **attributes: Any
    ) -> Value:
        """A node of one output, which later operators may take."""
        return self.keep(self.node(op, inputs, **attributes)[0], shape)
