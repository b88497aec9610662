"""A node that computes on strings, as its converter sees it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np
import onnx
from onnx import helper

from compiler.errors import ImportFailed
from compiler.ir.files.node_labels import label_of, op_of
from relaxd.contract.dims.tensors import TEXT

AxisName: TypeAlias = int | str | None
"""An extent, the name of a dim, or None for one that only a call knows."""
Axes: TypeAlias = tuple[AxisName, ...]


@dataclass(frozen=True)
class Operand:
    """A value: its dtype (TEXT for strings), None where nothing is known of it, its axes, and its
    elements where it is constant.
    """

    name: str
    dtype: str | None
    axes: Axes | None = None
    constant: np.ndarray[Any, Any] | None = None

    @property
    def is_text(self) -> bool:
        """True for strings."""
        return self.dtype == TEXT


@dataclass(frozen=True)
class Result:
    """One output of a step."""

    dtype: str
    axes: Axes | None


@dataclass(frozen=True)
class Converted:
    """A node as a step. inputs: the indices of those that the step takes, all by default.

    keys: where the step looks strings up in a table, the keys, so that the table's other half may
    stay in the library; strict: as of the step `index`.
    """

    op: str
    results: tuple[Result, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[int, ...] | None = None
    keys: tuple[str, ...] | None = None
    strict: bool = False


@dataclass(frozen=True)
class StringNode:
    """A node, its operands (None for one that is left out), and the opset of its domain."""

    proto: onnx.NodeProto
    operands: Sequence[Operand | None]
    opset: int

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value, bytes as text."""
        for attribute in self.proto.attribute:
            if attribute.name == name:
                return _plain(helper.get_attribute_value(attribute), self)
        return default

    def operand(self, index: int) -> Operand:
        """A required input."""
        if index >= len(self.operands) or self.operands[index] is None:
            self.fail(f"input {index} is required")
        operand = self.operands[index]
        assert operand is not None
        return operand

    def axes(self, index: int) -> Axes:
        """The axes of a required input; one that is not known where the library makes it."""
        axes = self.operand(index).axes
        return (None,) if axes is None else axes

    def integers(self, index: int) -> list[int]:
        """The elements of a required constant of integers."""
        constant = self.operand(index).constant
        if constant is None or constant.dtype.kind not in "iu":
            self.fail(f"input {index} is no constant of integers")
        return [int(one) for one in constant.reshape(-1)]

    def convert(self, convert: "Convert") -> Converted:
        """The node as a step; raises ImportFailed."""
        try:
            return convert(self)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            self.fail(f"its attributes do not fit its inputs ({error})")

    def fail(self, why: str, hint: str | None = None) -> NoReturn:
        """Raise ImportFailed that names the node."""
        label, op = label_of(self.proto), op_of(self.proto)
        raise ImportFailed(
            f"the node {label!r} ({op}) computes on strings, and cannot be a step around the "
            f"library: {why}",
            reason="strings",
            node=label,
            op=op,
            hint=hint or OUTSIDE,
        )


OUTSIDE = (
    "compute this node outside, and give the model its result: cut it off with "
    "onnx.utils.extract_model(path, new_path, input_names, output_names)"
)

Convert: TypeAlias = Callable[[StringNode], Converted]

CONVERTERS: dict[tuple[str, str], Convert] = {}


def converts(*ops: str, domain: str = "") -> Callable[[Convert], Convert]:
    """Register the converter of nodes."""

    def register(convert: Convert) -> Convert:
        CONVERTERS.update({(domain, op): convert for op in ops})
        return convert

    return register


def _plain(value: Any, node: StringNode) -> Any:
    try:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [one.decode() if isinstance(one, bytes) else one for one in value]
    except UnicodeDecodeError:
        node.fail("an attribute is no UTF-8")
    return value
