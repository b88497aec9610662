"""Nodes that several parts of an encoder's graph have: matmuls with a bias, norms, activations."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler.ir.decoders.design import Named
from compiler.ir.decoders.graph import MICROSOFT, Graph
from compiler.ir.decoders.quantized import Array
from compiler.ir.encoders.design import Activation, Linear, Norm

INTEGER, REAL = TensorProto.INT64, TensorProto.FLOAT
LOWEST = float(np.finfo(np.float32).min)
"""Takes the place of scores of masked tokens: a row without any other has a mean, not NaN."""
_PLAIN = {Activation.RELU: "Relu", Activation.TANH: "Tanh"}
_APPROXIMATION = {Activation.GELU: "none", Activation.GELU_TANH: "tanh"}
_SHARPNESS = {Activation.SILU: 1.0, Activation.QUICK_GELU: 1.702}


def integers(graph: Graph, *values: int) -> str:
    """A constant int64 [values]."""
    name = "integers_" + "_".join(map(str, values)).replace("-", "m")
    return graph.constant(name, np.array(values, np.int64))


def integer(graph: Graph, value: int) -> str:
    """A constant int64 []."""
    return graph.constant(f"integer_{value}".replace("-", "m"), np.array(value, np.int64))


def real(graph: Graph, name: str, value: float) -> str:
    """A constant float32 []."""
    return graph.constant(name, np.array(value, np.float32))


def weight(graph: Graph, tensor: Named) -> str:
    """A constant of the weights."""
    assert isinstance(tensor.tensor, np.ndarray)
    return graph.constant(tensor.name, tensor.tensor)


def array_of(tensor: Named) -> Array:
    """The numbers of a tensor that is not quantized."""
    assert isinstance(tensor.tensor, np.ndarray)
    return tensor.tensor


def multiply(graph: Graph, x: str, linear: Linear, output: str) -> str:
    """x times the matrix, plus its bias."""
    if linear.bias is None:
        return graph.matmul(x, linear.matrix, output)
    x = graph.matmul(x, linear.matrix, f"{output}.matmul")
    return graph.node("Add", [x, weight(graph, linear.bias)], output)


def normalize(graph: Graph, x: str, norm: Norm | None, epsilon: float, output: str) -> str:
    """x of a mean of 0 and a variance of 1 along its last axis, scaled; x itself without a norm."""
    if norm is None:
        return x
    inputs = [x, weight(graph, norm.scale)]
    if norm.bias is not None:
        inputs.append(weight(graph, norm.bias))
    return graph.node("LayerNormalization", inputs, output, axis=-1, epsilon=epsilon)


def activate(graph: Graph, x: str, activation: Activation, output: str) -> str:
    """The activation of each number of x."""
    if activation in _PLAIN:
        return graph.node(_PLAIN[activation], [x], output)
    if activation in _APPROXIMATION:
        return graph.node("Gelu", [x], output, approximate=_APPROXIMATION[activation])
    sharpness = _SHARPNESS[activation]
    if sharpness == 1:
        opening = graph.node("Sigmoid", [x], f"{output}.sigmoid")
        return graph.node("Mul", [x, opening], output)
    return graph.node("QuickGelu", [x], output, domain=MICROSOFT, alpha=sharpness)


def extent(graph: Graph, x: str, axis: int, output: str) -> str:
    """The extent of an axis, int64 [1]."""
    return graph.node("Shape", [x], output, start=axis, end=axis + 1)


def first_token(graph: Graph, x: str) -> str:
    """The vector of the first token, [batch, width] of x [batch, length, width]."""
    return graph.node("Gather", [x, integer(graph, 0)], f"{x}.first", axis=1)


def info(name: str, kind: int, shape: list[Any]) -> onnx.ValueInfoProto:
    """An input or output of the model."""
    return helper.make_tensor_value_info(name, kind, shape)
