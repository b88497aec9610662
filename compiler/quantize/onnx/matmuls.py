"""How matmuls of an ONNX model are quantized, and a model that casts their operands to bfloat16."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.ir.files.node_labels import label_of
from compiler.ir.onnx.model.opsets import convert_opset

_OLDEST = 13
"""The least opset whose Cast knows bfloat16."""
_ENDING = "__rounded"
_PERTURBATION = "__nudge"


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Grid:
    """Scale (`step`) and zero point of bytes (uint8) that stand for (byte - zero) * step."""

    step: float
    zero: int


@dataclass(frozen=True)
class MatmulQuantization:
    """The choices of a build about matmuls that its import quantizes.

    retained: those that stay float32, with the reasons. scales: by value, its SmoothQuant scales
    (float32 [depth]), by which it is divided and rows of the weights are multiplied. grids: by
    value, its static scale and zero point; None for dynamic quantization by scales of rows.
    """

    retained: Mapping[str, str] = field(default_factory=dict)
    scales: Mapping[str, Array] = field(default_factory=dict)
    grids: Mapping[str, Grid] | None = None


def cast_operands(
    model: onnx.ModelProto, labels: Collection[str], perturbation: float = 0.0
) -> onnx.ModelProto:
    """The model with both operands of those nodes cast to bfloat16 and back.

    perturbation: the share of itself by which the left operand changes before, which moves a few
    numbers to their other neighbour. Equal nodes are one in a library, so nodes like one of
    `labels` are cast too.
    """
    result = recent(model)
    wanted = {_key(node) for node in result.graph.node if label_of(node) in labels}
    casts: dict[tuple[str, bool], str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in result.graph.node:
        if _key(node) in wanted:
            for position in (0, 1):
                perturbed = position == 0 and perturbation != 0
                name = node.input[position]
                if (name, perturbed) not in casts:
                    nodes += _casts(name, perturbed)
                    casts[name, perturbed] = _name(name, perturbed)
                node.input[position] = casts[name, perturbed]
        nodes.append(node)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    if perturbation:
        factor = numpy_helper.from_array(np.float32(1 + perturbation), _PERTURBATION)
        result.graph.initializer.append(factor)
    return result


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


def _name(name: str, perturbed: bool) -> str:
    return f"{name}{_PERTURBATION if perturbed else ''}{_ENDING}"


def _casts(name: str, perturbed: bool) -> Iterator[onnx.NodeProto]:
    """Nodes that cast a value to bfloat16 and back."""
    source, end = name, _name(name, perturbed)
    if perturbed:
        source = f"{end}__given"
        yield helper.make_node("Mul", [name, _PERTURBATION], [source])
    yield helper.make_node("Cast", [source], [f"{end}__bits"], to=TensorProto.BFLOAT16)
    yield helper.make_node("Cast", [f"{end}__bits"], [end], to=TensorProto.FLOAT)
