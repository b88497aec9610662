"""Which nodes of a model compute on strings before the library, and which after it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.errors import ImportFailed
from compiler.ir.graph.signature import FileInput, specs_of
from compiler.ir.onnx.model.dtypes import DTYPES
from compiler.ir.onnx.model.opsets import opsets_of
from compiler.ir.onnx.strings import text, tokenizers  # noqa: F401  fills the registry
from compiler.ir.onnx.strings.moving import constant_of
from compiler.ir.onnx.strings.operand import (
    CONVERTERS,
    AxisName,
    Convert,
    Converted,
    Operand,
    StringNode,
)
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.tensors import TEXT, TensorSpec
from relaxd.contract.request import CompileRequest

STRING = onnx.TensorProto.STRING
LABELS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""Classifiers, whose first output is of strings where `classlabels_strings` has some, and what
names labels that are integers."""
_MAPPING = ("LabelEncoder", "CategoryMapper")


@dataclass
class Parts:
    """The nodes of a model by index, in its order.

    before: those whose values follow from strings and constants; after: those that make strings of
    the library's numbers; labels: classifiers whose labels are strings.
    """

    model: onnx.ModelProto
    inputs: dict[str, TensorSpec] = field(default_factory=dict)
    operands: dict[str, Operand] = field(default_factory=dict)
    known: dict[int, Converted] = field(default_factory=dict)
    """Every node that a step before the library can compute, needed or not."""
    before: set[int] = field(default_factory=set)
    after: dict[int, Converted] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    """Values that are there only when the library has run."""
    labels: dict[int, list[str]] = field(default_factory=dict)

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """The model's."""
        return list(self.model.graph.node)


def has_strings(model: onnx.ModelProto) -> bool:
    """True if some value of the model is of strings."""
    graph = model.graph
    return (
        any(one.type.tensor_type.elem_type == STRING for one in (*graph.input, *graph.output))
        or any(one.data_type == STRING for one in graph.initializer)
        or any(_labels_of(node) or _maps_text(node) for node in graph.node)
    )


def find_parts(model: onnx.ModelProto, request: CompileRequest) -> Parts:
    """Raises ImportFailed for a node on strings that no step can be."""
    parts = Parts(model)
    _add_inputs(parts, request)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor) if _is_small(tensor) else None
        dtype = TEXT if tensor.data_type == STRING else DTYPES.get(tensor.data_type)
        parts.operands[tensor.name] = Operand(tensor.name, dtype, tuple(tensor.dims), array)
    opsets = opsets_of(model.opset_import)
    for index, node in enumerate(model.graph.node):
        _add(parts, index, node, opsets.get("" if node.domain == "ai.onnx" else node.domain, 1))
    _require(parts)
    return parts


def _is_small(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type == STRING or int(np.prod(tensor.dims, dtype=np.int64)) <= 1 << 16


def _add_inputs(parts: Parts, request: CompileRequest) -> None:
    constants = {tensor.name for tensor in parts.model.graph.initializer}
    own = [one for one in parts.model.graph.input if one.name not in constants]
    texts = [one for one in own if one.type.tensor_type.elem_type == STRING]
    files = [FileInput(one.name, TEXT, axes_of(one)) for one in texts]
    for spec in specs_of(files, request):
        parts.inputs[spec.name] = spec
        parts.operands[spec.name] = Operand(spec.name, TEXT, tuple(map(_name, spec.shape)))


def _name(axis: Axis) -> AxisName:
    return axis.symbol or (axis.text if axis.size is None else axis.size)


def _add(parts: Parts, index: int, node: onnx.NodeProto, opset: int) -> None:
    operands = [
        parts.operands.get(name, Operand(name, None)) if name else None for name in node.input
    ]
    of_text = any(
        parts.operands[name].is_text for name in read_names(node) if name in parts.operands
    )
    if labels := _labels_of(node):
        parts.labels[index] = labels
        parts.operands[node.output[0]] = Operand(node.output[0], TEXT)
        parts.late.add(node.output[0])
        return
    convert = CONVERTERS.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
    this = StringNode(node, operands, opset)
    early = all(one is None or _is_early(parts, one) for one in operands)
    if not (of_text or _maps_text(node)):
        _try_early(parts, index, this, convert if early else None)
        return
    if convert is None:
        this.fail("it is none of the operators that steps have")
    _divide(parts, index, this, this.convert(convert), early=early)


def _is_early(parts: Parts, operand: Operand) -> bool:
    """True for a value that is there before the library runs."""
    return operand.name in parts.operands and operand.name not in parts.late


def _try_early(parts: Parts, index: int, node: StringNode, convert: Convert | None) -> None:
    """Note a node on numbers alone, for the case that one on strings needs it."""
    if convert is None:
        return
    try:
        converted = node.convert(convert)
    except ImportFailed:
        return
    if converted.op:
        parts.known[index] = converted
        _add_results(parts, node, converted)


def _divide(
    parts: Parts, index: int, node: StringNode, converted: Converted, *, early: bool
) -> None:
    if early:
        parts.known[index] = converted
        parts.before.add(index)
    elif all(result.dtype == TEXT for result in converted.results):
        parts.after[index] = converted
        parts.late.update(node.proto.output)
    else:
        node.fail("it reads strings that the library would have to make")
    _add_results(parts, node, converted)


def _add_results(parts: Parts, node: StringNode, converted: Converted) -> None:
    constant = None
    if converted.op == "constant":
        constant = constant_of(node.proto.attribute[0].name, node)
    for name, result in zip(node.proto.output, converted.results, strict=False):
        parts.operands[name] = Operand(name, result.dtype, result.axes, constant)


def _require(parts: Parts) -> None:
    """Add what the nodes before the library need of others."""
    makers = {
        name: index
        for index in parts.known
        for name in parts.nodes[index].output
        if name and parts.operands[name].constant is None
    }
    waiting = [*parts.before]
    while waiting:
        for name in parts.nodes[waiting.pop()].input:
            if name in makers and makers[name] not in parts.before:
                waiting.append(makers[name])
                parts.before.add(makers[name])


def read_names(node: onnx.NodeProto) -> Iterator[str]:
    """The values that a node or a graph of it reads, those of the graph's own among them."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (one.name for one in graph.output)
            for inner in graph.node:
                yield from read_names(inner)


def _labels_of(node: onnx.NodeProto) -> list[str]:
    """The labels of a classifier whose output of strings may be used."""
    if node.domain != "ai.onnx.ml" or node.op_type not in LABELS or not any(node.output[:1]):
        return []
    for attribute in node.attribute:
        if attribute.name == "classlabels_strings":
            return [one.decode(errors="replace") for one in attribute.strings]
    return []


def _maps_text(node: onnx.NodeProto) -> bool:
    """True for a node that maps numbers to strings, or strings to numbers."""
    if node.op_type == "Cast":
        return any(one.name == "to" and one.i == STRING for one in node.attribute)
    return node.op_type in _MAPPING and any(
        one.strings or one.t.data_type == STRING
        for one in node.attribute
        if one.name.startswith(("keys", "values", "cats"))
    )


def axes_of(value: onnx.ValueInfoProto) -> tuple[AxisName, ...] | None:
    """The axes that a file gives an input; None without a rank."""
    shape = value.type.tensor_type.shape
    if not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        one.dim_value if one.HasField("dim_value") else one.dim_param or None for one in shape.dim
    )
