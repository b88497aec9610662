"""Models in ONNX Runtime's own format (`.ort`) as ONNX models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.InferenceSession import (
    InferenceSession,
)
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.TensorTypeAndShape import (
    TensorTypeAndShape,
)

_TENSOR_TYPE = 1
"""Of a value's type: a tensor, no sequence and no map."""
_SYMBOL = 2
"""Of a dimension: it has a name."""


def onnx_of(file: Path) -> onnx.ModelProto:
    """The model with its operators as they are stored: ONNX Runtime's rewrites stay."""
    model = InferenceSession.GetRootAs(file.read_bytes(), 0).Model()
    sets = (model.OpsetImport(i) for i in range(model.OpsetImportLength()))
    return onnx.ModelProto(
        ir_version=model.IrVersion(),
        opset_import=[helper.make_opsetid(_text(each.Domain()), each.Version()) for each in sets],
        graph=_graph(model.Graph()),
    )


def _graph(stored: Any) -> GraphProto:
    values = {_text(value.Name()): value for value in _each(stored, "NodeArgs")}
    return GraphProto(
        name="graph",
        initializer=[_tensor(tensor) for tensor in _each(stored, "Initializers")],
        input=[_value(values[_text(name)]) for name in _each(stored, "Inputs")],
        output=[_value(values[_text(name)]) for name in _each(stored, "Outputs")],
        node=_in_order([_node(node) for node in _each(stored, "Nodes")]),
    )


def _each(table: Any, field: str) -> Iterator[Any]:
    """The elements of a vector, for which the format's classes have a method by index."""
    return map(getattr(table, field), range(getattr(table, f"{field}Length")()))


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode()


def _value(stored: Any) -> onnx.ValueInfoProto:
    """A graph's input or output; one without a tensor's type, as branches have, keeps its name."""
    kind = stored.Type()
    if kind is None or kind.ValueType() != _TENSOR_TYPE:
        return helper.make_empty_tensor_value_info(_text(stored.Name()))
    tensor, position = TensorTypeAndShape(), kind.Value()
    tensor.Init(position.Bytes, position.Pos)
    shape = tensor.Shape()
    axes = None if shape is None else [_axis(axis.Value()) for axis in _each(shape, "Dim")]
    return helper.make_tensor_value_info(_text(stored.Name()), tensor.ElemType(), axes)


def _axis(stored: Any) -> int | str | None:
    if stored is None or stored.DimType() == 0:
        return None
    return _text(stored.DimParam()) if stored.DimType() == _SYMBOL else int(stored.DimValue())


def _tensor(stored: Any) -> TensorProto:
    return TensorProto(
        name=_text(stored.Name()),
        data_type=stored.DataType(),
        dims=_each(stored, "Dims"),
        raw_data=stored.RawDataAsNumpy().tobytes() if stored.RawDataLength() else b"",
        string_data=_each(stored, "StringData"),
    )


def _node(stored: Any) -> NodeProto:
    return NodeProto(
        op_type=_text(stored.OpType()),
        domain=_text(stored.Domain()),
        name=_text(stored.Name()),
        input=map(_text, _each(stored, "Inputs")),
        output=map(_text, _each(stored, "Outputs")),
        attribute=[_attribute(attribute) for attribute in _each(stored, "Attributes")],
    )


def _attribute(stored: Any) -> AttributeProto:
    """The format numbers kinds of attributes as ONNX does."""
    kind = stored.Type()
    content: dict[int, Any] = {
        AttributeProto.FLOAT: lambda: {"f": stored.F()},
        AttributeProto.INT: lambda: {"i": stored.I()},
        AttributeProto.STRING: lambda: {"s": stored.S() or b""},
        AttributeProto.TENSOR: lambda: {"t": _tensor(stored.T())},
        AttributeProto.GRAPH: lambda: {"g": _graph(stored.G())},
        AttributeProto.FLOATS: lambda: {"floats": _each(stored, "Floats")},
        AttributeProto.INTS: lambda: {"ints": _each(stored, "Ints")},
        AttributeProto.STRINGS: lambda: {"strings": _each(stored, "Strings")},
    }
    return AttributeProto(name=_text(stored.Name()), type=kind, **content[kind]())


def _in_order(nodes: list[NodeProto]) -> list[NodeProto]:
    """Each node behind those whose outputs it reads, its branches included."""
    awaited = {name for node in nodes for name in node.output if name}

    def waits(node: NodeProto) -> bool:
        # Results of a branch may have the names of the node's.
        return bool(_reads(node) & awaited - set(node.output))

    ordered: list[NodeProto] = []
    while nodes:
        ready, nodes = [n for n in nodes if not waits(n)], [n for n in nodes if waits(n)]
        assert ready, "the graph has a cycle"
        ordered += ready
        awaited -= {name for node in ready for name in node.output}
    return ordered


def _reads(node: NodeProto) -> set[str]:
    """The names that a node and its subgraphs read."""
    graphs = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    inner = [_reads(each) for graph in graphs for each in graph.node]
    results = {result.name for graph in graphs for result in graph.output}
    return set(node.input) | results | set().union(*inner)
