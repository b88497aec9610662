"""The nodes of an ONNX model whose operands can be rounded, and a model that rounds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.ir.onnx.model.opsets import convert_opset
from compiler.ir.onnx.model.walking import walk

OPERATORS = ("MatMul", "Gemm", "Conv")
_OLDEST = 13
"""The least opset whose Cast knows bfloat16."""
_ENDING = "__rounded"
_NUDGE = "__nudge"


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Grid:
    """What bytes (uint8) stand for: (byte - zero) * step."""

    step: float
    zero: int


@dataclass(frozen=True)
class Narrowing:
    """What a build has chosen of products that its import rounds.

    kept: those that stay as they are, with the reasons. scales: by value, what its channels are
    divided by before they are rounded (float32 [depth]); rows of the weights are multiplied by it.
    grids: by value, the grid that all its numbers are rounded to; None where each run finds scales
    of rows.
    """

    kept: Mapping[str, str] = field(default_factory=dict)
    scales: Mapping[str, Array] = field(default_factory=dict)
    grids: Mapping[str, Grid] | None = None


def label_of(node: onnx.NodeProto) -> str:
    """What an import calls the node."""
    return node.name or next((name for name in node.output if name), node.op_type)


def products_of(model: onnx.ModelProto) -> frozenset[str]:
    """The labels of the main graph's products that no other node has."""
    inner = (node for function in model.functions for node in function.node)
    counts = Counter(map(label_of, walk((*model.graph.node, *inner))))
    return frozenset(
        label_of(node)
        for node in model.graph.node
        if node.op_type in OPERATORS
        and node.domain in ("", "ai.onnx")
        and counts[label_of(node)] == 1
    )


def round_operands(
    model: onnx.ModelProto, labels: Collection[str], nudge: float = 0.0
) -> onnx.ModelProto:
    """The model with both operands of those nodes cast to bfloat16 and back.

    nudge: by what share of itself the left operand changes before, which moves a few numbers to
    their other neighbour. Equal nodes are one in a library, so those like a node of `labels` round
    too.
    """
    made = recent(model)
    wanted = {_key(node) for node in made.graph.node if label_of(node) in labels}
    rounded: dict[tuple[str, bool], str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in made.graph.node:
        if _key(node) in wanted:
            for position in (0, 1):
                nudged = position == 0 and nudge != 0
                name = node.input[position]
                if (name, nudged) not in rounded:
                    nodes += _rounding(name, nudged)
                    rounded[name, nudged] = _name(name, nudged)
                node.input[position] = rounded[name, nudged]
        nodes.append(node)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    if nudge:
        factor = numpy_helper.from_array(np.float32(1 + nudge), _NUDGE)
        made.graph.initializer.append(factor)
    return made


def recent(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of an opset that has casts to bfloat16."""
    return convert_opset(model, _OLDEST)


def _key(node: onnx.NodeProto) -> bytes:
    """Equal for nodes that compute the same."""
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    bare.ClearField("name")
    bare.ClearField("doc_string")
    del bare.output[:]
    return bytes(bare.SerializeToString(deterministic=True))


def _name(name: str, nudged: bool) -> str:
    return f"{name}{_NUDGE if nudged else ''}{_ENDING}"


def _rounding(name: str, nudged: bool) -> Iterator[onnx.NodeProto]:
    """Nodes that round a value to bfloat16."""
    given, end = name, _name(name, nudged)
    if nudged:
        given = f"{end}__given"
        yield helper.make_node("Mul", [name, _NUDGE], [given])
    yield helper.make_node("Cast", [given], [f"{end}__bits"], to=TensorProto.BFLOAT16)
    yield helper.make_node("Cast", [f"{end}__bits"], [end], to=TensorProto.FLOAT)
