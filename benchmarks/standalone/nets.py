"""Small nets with drawn weights, each as ONNX and, by hand, as TensorFlow Lite's format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Layer:
    """kind: `dense` (weights out, in), `conv` (out, rows, columns, in), `depthwise` (1, rows,
    columns, channels) or `mean` over rows and columns. Rectified, but for means and the last.
    """

    kind: str
    weights: Floats | None = None
    bias: Floats | None = None
    stride: int = 1
    rectified: bool = True


@dataclass(frozen=True)
class Net:
    """shape: of one input, rows, columns and channels, or features."""

    name: str
    shape: tuple[int, ...]
    layers: tuple[Layer, ...]


def _draw(shape: tuple[int, ...], fan: int) -> Floats:
    seed = int(np.prod(shape))
    return (np.random.default_rng(seed).standard_normal(shape) * (2 / fan) ** 0.5).astype("float32")


def _dense(inside: int, outside: int, rectified: bool = True) -> Layer:
    return Layer("dense", _draw((outside, inside), inside), _draw((outside,), 9), 1, rectified)


def _conv(inside: int, outside: int, size: int, stride: int = 1) -> Layer:
    weights = _draw((outside, size, size, inside), size * size * inside)
    return Layer("conv", weights, _draw((outside,), 9), stride)


def _separable(inside: int, outside: int, stride: int = 1) -> tuple[Layer, Layer]:
    depth = Layer("depthwise", _draw((1, 3, 3, inside), 9), _draw((inside,), 9), stride)
    return depth, _conv(inside, outside, 1)


NETS = (
    Net("perceptron", (32,), (_dense(32, 48), _dense(48, 7, False))),
    Net("wide", (256,), (_dense(256, 1024), _dense(1024, 1024), _dense(1024, 10, False))),
    Net(
        "mobile",
        (96, 96, 3),
        (
            _conv(3, 16, 3, 2),
            *_separable(16, 32),
            *_separable(32, 64, 2),
            *_separable(64, 64),
            *_separable(64, 128, 2),
            Layer("mean", rectified=False),
            _dense(128, 10, False),
        ),
    ),
    Net(
        "convolutions",
        (56, 56, 64),
        (_conv(64, 64, 3), _conv(64, 64, 3), Layer("mean", rectified=False), _dense(64, 10, False)),
    ),
)


def to_onnx(net: Net) -> onnx.ModelProto:
    """With a batch `n`; images have their channels first."""
    nodes, stored, value = [], [], "x"
    for i, layer in enumerate(net.layers):
        result = f"v{i}"
        if layer.weights is not None and layer.bias is not None:
            stored += [_stored(f"w{i}", _of_onnx(layer)), _stored(f"b{i}", layer.bias)]
        nodes.append(_node(layer, value, result, i))
        if layer.rectified:
            nodes.append(helper.make_node("Relu", [result], [f"r{i}"]))
            result = f"r{i}"
        value = result
    first = (net.shape[-1], *net.shape[:-1]) if len(net.shape) == 3 else net.shape
    wanted = net.layers[-1].bias
    assert wanted is not None
    graph = helper.make_graph(
        nodes,
        net.name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *first])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", wanted.size])],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _stored(name: str, array: Floats) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(array), name)


def _of_onnx(layer: Layer) -> Floats:
    assert layer.weights is not None
    if layer.kind == "dense":
        return layer.weights
    axes = (3, 0, 1, 2) if layer.kind == "depthwise" else (0, 3, 1, 2)
    return layer.weights.transpose(axes)


def _node(layer: Layer, value: str, result: str, i: int) -> onnx.NodeProto:
    if layer.kind == "mean":
        return helper.make_node("ReduceMean", [value], [result], axes=[2, 3], keepdims=0)
    if layer.kind == "dense":
        return helper.make_node("Gemm", [value, f"w{i}", f"b{i}"], [result], transB=1)
    assert layer.weights is not None
    channels = layer.weights.shape[3] if layer.kind == "depthwise" else 1
    return helper.make_node(
        "Conv",
        [value, f"w{i}", f"b{i}"],
        [result],
        strides=[layer.stride] * 2,
        auto_pad="SAME_UPPER",
        group=channels,
    )


def to_lite(net: Net, batch: int) -> bytes:
    """A flatbuffer; images have their channels last."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    writer = _Writer(schema, [], [schema.BufferT()], [], [])
    shape: tuple[int, ...] = (batch, *net.shape)
    value = first = writer.tensor("x", shape)
    for i, layer in enumerate(net.layers):
        shape = _shape_after(layer, shape)
        value = writer.layer(layer, value, shape, i)
    graph = schema.SubGraphT()
    graph.tensors, graph.operators = writer.tensors, writer.operators
    graph.inputs, graph.outputs = [first], [value]
    model = schema.ModelT()
    model.version, model.subgraphs, model.buffers = 3, [graph], writer.buffers
    model.operatorCodes = writer.codes
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _shape_after(layer: Layer, shape: tuple[int, ...]) -> tuple[int, ...]:
    if layer.kind == "mean":
        return shape[0], shape[3]
    assert layer.bias is not None
    if layer.kind == "dense":
        return shape[0], layer.bias.size
    rows, columns = (-(-size // layer.stride) for size in shape[1:3])
    return shape[0], rows, columns, layer.bias.size


@dataclass(frozen=True)
class _Writer:
    """The parts of a graph as they are written; schema: the package's generated module."""

    schema: Any
    tensors: list[Any]
    buffers: list[Any]
    operators: list[Any]
    codes: list[Any]

    def tensor(self, name: str, shape: Sequence[int], values: NDArray[Any] | None = None) -> int:
        """The index of a new tensor, constant where it has values."""
        tensor = self.schema.TensorT()
        integer = values is not None and values.dtype == np.int32
        tensor.type = getattr(self.schema.TensorType, "INT32" if integer else "FLOAT32")
        tensor.name, tensor.shape, tensor.buffer = name.encode(), list(shape), 0
        if values is not None:
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
            tensor.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def layer(self, layer: Layer, value: int, shape: Sequence[int], i: int) -> int:
        """The index of the layer's result."""
        schema, arguments = self.schema, [value]
        if layer.weights is None:
            arguments.append(self.tensor(f"a{i}", (2,), np.array([1, 2], np.int32)))
        else:
            assert layer.bias is not None
            arguments.append(self.tensor(f"w{i}", layer.weights.shape, layer.weights))
            arguments.append(self.tensor(f"b{i}", layer.bias.shape, layer.bias))
        code, kind, options = {
            "dense": ("FULLY_CONNECTED", "FullyConnectedOptions", schema.FullyConnectedOptionsT),
            "conv": ("CONV_2D", "Conv2DOptions", schema.Conv2DOptionsT),
            "depthwise": (
                "DEPTHWISE_CONV_2D",
                "DepthwiseConv2DOptions",
                schema.DepthwiseConv2DOptionsT,
            ),
            "mean": ("MEAN", "ReducerOptions", schema.ReducerOptionsT),
        }[layer.kind]
        created = options()
        if layer.kind in ("conv", "depthwise"):
            created.padding = schema.Padding.SAME
            created.strideH = created.strideW = layer.stride
            created.dilationHFactor = created.dilationWFactor = 1
        if layer.kind == "depthwise":
            created.depthMultiplier = 1
        if layer.kind != "mean":
            created.fusedActivationFunction = int(layer.rectified)
        operator = schema.OperatorT()
        operator.opcodeIndex = self._code(getattr(schema.BuiltinOperator, code))
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
        operator.builtinOptions = created
        result = self.tensor(f"v{i}", shape)
        operator.inputs, operator.outputs = arguments, [result]
        self.operators.append(operator)
        return result

    def _code(self, builtin: int) -> int:
        for index, code in enumerate(self.codes):
            if code.builtinCode == builtin:
                return index
        code = self.schema.OperatorCodeT()
        code.builtinCode = code.deprecatedBuiltinCode = builtin
        code.version = 1
        self.codes.append(code)
        return len(self.codes) - 1
