"""One ONNX node as its handler sees it: values, attributes, opset, and errors that name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.node_errors import NodeErrors
from compiler.ir.graph.origins import Origins
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.model.lists import Content, Items, Stacked
from compiler.ir.shapes.extents import Extent, spell
from compiler.ir.shapes.index_bounds import USUAL

if TYPE_CHECKING:
    from compiler.ir.onnx.scope import Scope

_MISSING = object()


@dataclass(frozen=True)
class Node(NodeErrors):
    """`inputs` holds None for an omitted optional input; `scope` reads subgraphs; `opset` is the
    domain's version.
    """

    proto: onnx.NodeProto
    inputs: tuple[Content | None, ...]
    attributes: dict[str, Any]
    opset: int
    builder: Builder
    scope: Scope

    @property
    def label(self) -> str:
        """The node's name, or the name of its first output."""
        return self.proto.name or next(
            (name for name in self.proto.output if name), self.proto.op_type
        )

    @property
    def origins(self) -> Origins:
        """The builder's."""
        return self.builder.origins

    @property
    def op(self) -> str:
        """`Add`, or `com.microsoft.FusedMatMul` outside the standard domain."""
        domain = self.proto.domain
        return self.proto.op_type if domain in ("", "ai.onnx") else f"{domain}.{self.proto.op_type}"

    def attr(self, name: str, default: Any = _MISSING) -> Any:
        """An attribute as a Python value: int, float, str, list, numpy array (tensors) or
        GraphProto.
        """
        if name in self.attributes:
            return self.attributes[name]
        if default is _MISSING:
            self.fail(f"the attribute {name!r} is required", reason="attribute")
        return default

    def has(self, index: int) -> bool:
        """True if the optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def content(self, index: int) -> Content:
        """A required input, a tensor or a sequence."""
        if not self.has(index):
            self.fail(f"input {index} is required", reason="input")
        result = self.inputs[index]
        assert result is not None
        return result

    def value(self, index: int) -> Value:
        """A required input, which is a tensor."""
        result = self.content(index)
        if isinstance(result, (Items, Stacked)):
            self.fail(f"input {index} is a sequence where a tensor belongs", reason="sequence")
        return result

    def sequence(self, index: int) -> Items | Stacked:
        """A required input, which is a sequence."""
        result = self.content(index)
        if not isinstance(result, (Items, Stacked)):
            self.fail(f"input {index} is a tensor where a sequence belongs", reason="sequence")
        return result

    def optional(self, index: int) -> Value | None:
        """An optional input, None when omitted."""
        return self.value(index) if self.has(index) else None

    def tensor(self, index: int) -> Tensor:
        """A required input as a run-time tensor."""
        return self.builder.tensor(self.value(index))

    def known_extents(self, index: int, what: str, least: Extent = 0) -> Known:
        """A required integer input as extents (see Builder.known_extents); sample inputs hold
        `least` and more.
        """
        limit_values(self.builder, self, index, least, USUAL, usual=True)
        return self.builder.known_extents(self.value(index), what)

    def known_integers(
        self,
        index: int,
        what: str,
        least: Extent = -USUAL,
        most: Extent = USUAL,
        nonzero: bool = False,
    ) -> Known:
        """A required integer input as symbols of either sign (see Builder.known_integers); sample
        inputs lie between the two ends, and are not 0 with `nonzero`.
        """
        limit_values(self.builder, self, index, least, most, usual=True, nonzero=nonzero)
        return self.builder.known_integers(self.value(index), what)

    def known_positions(self, index: int, what: str, nonzero: bool = False) -> Known:
        """A required integer input as bounds along an axis (see Builder.known_positions); sample
        inputs are not 0 with `nonzero`.
        """
        limit_values(self.builder, self, index, -USUAL, USUAL, usual=True, nonzero=nonzero)
        return self.builder.known_positions(self.value(index), what)

    def declared_rank(self, index: int) -> int | None:
        """The rank that the model declares for an output, None where it declares none."""
        return self.scope.model.ranks.get(self.proto.output[index])

    def wants(self, index: int) -> bool:
        """True if the node's output of that index has a name."""
        return index < len(self.proto.output) and bool(self.proto.output[index])

    def is_used(self, index: int) -> bool:
        """True if another node or an output of the model may read that output."""
        used = self.scope.model.used
        return self.wants(index) and (used is None or self.proto.output[index] in used)

    def describe_inputs(self) -> list[str]:
        """Describe the inputs, for errors (see NodeErrors)."""
        return describe(self.inputs)


def describe(inputs: Sequence[Content | None]) -> list[str]:
    """Dtype and symbolic shape of each input, for messages."""
    return [_described(content) for content in inputs]


def _described(content: Content | None) -> str:
    match content:
        case None:
            return "-"
        case Items():
            return f"({', '.join(map(_described, content.values))})"
        case Stacked():
            return f"items of {_described(content.tensor)}"
    return f"{content.dtype}[{','.join(map(spell, content.shape))}]"
