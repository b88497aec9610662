"""Faults as kernels and passes have them: planted into a copy of the model that is compiled, while
the reference keeps the model, or into a library's outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from onnx import helper, numpy_helper

from relaxd.contract.dims.tensors import TensorSpec
from tests.support.geometries import geometry

Array = np.ndarray[Any, Any]
ModelFault = Callable[[onnx.ModelProto, Generator, int], bool]
"""Changes the model in place, for vectors of so many lanes; False where nothing is to change."""
OutputFault = Callable[[Array, int], None]
"""Changes an output in place; what has no such part stays as it is."""

LANES = "lanes"
"""The key of a faulty runner's spec."""

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger")
_FLOATS = (
    *("Conv", "ConvTranspose", "Gemm", "MatMul", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Erf"),
    *("Softmax", "LayerNormalization", "BatchNormalization", "AveragePool", "GlobalAveragePool"),
    *("HardSwish", "HardSigmoid", "Gelu", "Elu", "Sqrt", "Exp", "Log", "Softplus", "PRelu"),
)
"""Operators whose outputs are floats in any case."""
_LOW = -1e9


def read_lanes(unit: str) -> int:
    """Return how many float32 numbers a vector of the geometry has."""
    return geometry(unit).vector_bits // 32


def drop_bias(model: onnx.ModelProto, random: Generator, lanes: int) -> bool:
    """One bias is not added."""
    names = [node.input[2] for node in _of(model, "Conv", "Gemm") if len(node.input) > 2]
    names += [name for node in _of(model, "Add") for name in node.input]
    return _change(model, random, names, lambda array: 0 * array, least=2)


def swap_channels(model: onnx.ModelProto, random: Generator, lanes: int) -> bool:
    """The output channels of one weight at both sides of a vector's edge are swapped."""

    def swap(array: Array) -> Array:
        axis = _output_axis(array)
        order = np.arange(array.shape[axis])
        edge = lanes if len(order) > lanes else len(order) - 1
        order[[edge - 1, edge]] = order[[edge, edge - 1]]
        return np.take(array, order, axis)

    return _change(model, random, _weights(model), swap, least=2)


def repeat_column(model: onnx.ModelProto, random: Generator, lanes: int) -> bool:
    """The last column of a tile has its neighbour's values."""

    def repeat(array: Array) -> Array:
        axis = _output_axis(array)
        order = np.arange(array.shape[axis])
        order[len(order) // lanes * lanes - 1] -= 1
        return np.take(array, np.maximum(order, 0), axis)

    return _change(model, random, _weights(model), repeat, least=2)


def shift_pad(model: onnx.ModelProto, random: Generator, lanes: int) -> bool:
    """One convolution pads one more before an axis and one less behind it."""
    pads = [
        attribute
        for node in _of(model, "Conv", "Pad")
        for attribute in node.attribute
        if attribute.name == "pads" and any(attribute.ints[len(attribute.ints) // 2 :])
    ]
    if not pads:
        return False
    chosen = pads[random.integers(len(pads))]
    half = len(chosen.ints) // 2
    axis = next(axis for axis in range(half) if chosen.ints[half + axis])
    chosen.ints[axis] += 1
    chosen.ints[half + axis] -= 1
    return True


def scale_weight(model: onnx.ModelProto, random: Generator, lanes: int) -> bool:
    """One scale of quantized numbers, of a norm or of weights is 1.05 times what it should be, as
    one of an earlier calibration.
    """
    quantizing = ("DequantizeLinear", "QuantizeLinear", "LayerNormalization", "BatchNormalization")
    names = [node.input[1] for node in _of(model, *quantizing)]
    names += [node.input[2] for node in _of(model, "MatMulNBits") if len(node.input) > 2]
    scaled = _weights(model) if not names or random.integers(2) else names
    return _change(model, random, scaled, lambda array: array * np.float32(1.05))


def scale_node(model: onnx.ModelProto, random: Generator, lanes: int) -> bool:
    """The output of one node among all is 2 % too large: one wrong kernel."""
    return _insert(model, random, lambda name: [_binary("Mul", name, np.float32(1.02), model)])


def quantize_again(model: onnx.ModelProto, random: Generator, lanes: int) -> bool:
    """The output of one node is quantized to 6 bits of its greatest value: an int8 rounding done
    twice loses about as much.
    """

    def quantize(name: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Abs", [name], [f"{name}.abs"]),
            helper.make_node("ReduceMax", [f"{name}.abs"], [f"{name}.most"], keepdims=0),
            helper.make_node("Div", [name, f"{name}.most"], [f"{name}.unit"]),
            _binary("Mul", f"{name}.unit", np.float32(31), model, f"{name}.wide"),
            helper.make_node("Round", [f"{name}.wide"], [f"{name}.steps"]),
            _binary("Mul", f"{name}.steps", np.float32(1 / 31), model, f"{name}.near"),
            helper.make_node("Mul", [f"{name}.near", f"{name}.most"], [f"{name}.faulty"]),
        ]

    return _insert(model, random, quantize)


def drop_column(model: onnx.ModelProto, random: Generator, lanes: int) -> bool:
    """The last column of one node's output is never written."""
    return _insert(model, random, lambda name: _replace_last(name, 0.0, model))


def mask_key(model: onnx.ModelProto, random: Generator, lanes: int) -> bool:
    """One position more than wanted is masked in front of a softmax."""
    makers = {name: node for node in _nodes(model) for name in node.output}
    asked = [node.input[0] for node in _of(model, "Softmax") if node.input[0] in makers]
    return _insert(model, random, lambda name: _replace_last(name, _LOW, model), asked)


MODEL_FAULTS: Mapping[str, ModelFault] = {
    fault.__name__: fault
    for fault in (
        *(drop_bias, swap_channels, repeat_column, shift_pad, scale_weight, scale_node),
        *(quantize_again, drop_column, mask_key),
    )
}


def last_column(array: Array, lanes: int) -> None:
    """The last column is never written."""
    if array.ndim and array.shape[-1] > 1:
        array[..., -1] = 0


def last_of_tile(array: Array, lanes: int) -> None:
    """The last lane of each tile holds its neighbour's value."""
    if array.ndim and array.shape[-1] >= lanes:
        ends = array[..., lanes - 1 :: lanes]
        array[..., lanes - 1 :: lanes] = array[..., lanes - 2 :: lanes][..., : ends.shape[-1]]


def tail(array: Array, lanes: int) -> None:
    """Where the last tile is not full, its last column holds its neighbour's value."""
    if array.ndim and array.shape[-1] > 1 and array.shape[-1] % lanes:
        array[..., -1] = array[..., -2]


def last_row(array: Array, lanes: int) -> None:
    """The last row is that before it."""
    if array.ndim > 1 and array.shape[-2] > 1:
        array[..., -1, :] = array[..., -2, :]


def mask_edge(array: Array, lanes: int) -> None:
    """One position more than wanted is masked, of the second axis."""
    if array.ndim > 2 and array.shape[1] > 1:
        array[0, -1] = 0


def shift_columns(array: Array, lanes: int) -> None:
    """Everything is one column off."""
    if array.ndim:
        array[...] = np.roll(array, 1, axis=-1)


def hold_constant(array: Array, lanes: int) -> None:
    """The output is its mean throughout."""
    if array.size:
        array[...] = np.asarray(array.astype("f8").mean()).astype(array.dtype)


OUTPUT_FAULTS: Mapping[str, OutputFault] = {
    fault.__name__: fault
    for fault in (
        *(last_column, last_of_tile, tail, last_row, mask_edge, shift_columns, hold_constant),
    )
}
FAULTS = (*MODEL_FAULTS, *OUTPUT_FAULTS)
_LEAST_RANKS = {"last_row": 2, "mask_edge": 3}


def is_applicable(fault: str, spec: TensorSpec, lanes: int) -> bool:
    """Tell whether an output of that kind has the part that the fault changes."""
    rank, columns = len(spec.shape), spec.shape[-1].size if spec.shape else 1
    if fault == "tail" and columns is not None and columns % lanes == 0:
        return False
    least = lanes if fault == "last_of_tile" else 2
    return rank >= _LEAST_RANKS.get(fault, 1) and (columns is None or columns >= least)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and those of its branches and loops."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    return (node for graph in _graphs(model.graph) for node in graph.node)


def _of(model: onnx.ModelProto, *operators: str) -> Iterator[onnx.NodeProto]:
    return (node for node in _nodes(model) if node.op_type in operators)


def _constants(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yield every tensor that the model holds, by the name that nodes read it by."""
    for graph in _graphs(model.graph):
        yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in _of(model, "Constant"):
        yield from ((node.output[0], each.t) for each in node.attribute if each.name == "value")


def _weights(model: onnx.ModelProto) -> list[str]:
    return [node.input[1] for node in _of(model, *_WEIGHTED)]


def _output_axis(array: Array) -> int:
    """Return the axis of a weight's output channels: a convolution's are first."""
    return 0 if array.ndim > 2 else -1


def _change(
    model: onnx.ModelProto,
    random: Generator,
    names: Sequence[str],
    change: Callable[[Array], Array],
    least: int = 1,
) -> bool:
    """Change one of the constants of these names; False where there is none it makes a difference
    to.
    """
    wanted = set(names)
    tensors = [tensor for name, tensor in _constants(model) if name in wanted]
    for position in random.permutation(len(tensors)):
        array = numpy_helper.to_array(tensors[position])
        if array.ndim and array.size >= least:
            changed = np.asarray(change(array)).astype(array.dtype)
            if not np.array_equal(changed, array):
                tensors[position].CopyFrom(numpy_helper.from_array(changed, tensors[position].name))
                return True
    return False


def _insert(
    model: onnx.ModelProto,
    random: Generator,
    make: Callable[[str], list[onnx.NodeProto]],
    values: Sequence[str] | None = None,
) -> bool:
    """Put nodes behind one that gives floats, of `values` where they are given; the last of them
    gives what others read.
    """
    outputs = [
        (graph, index, position)
        for graph in _graphs(model.graph)
        for index, node in enumerate(graph.node)
        for position, name in enumerate(node.output)
        if (name in values if values is not None else not position and node.op_type in _FLOATS)
    ]
    if not outputs:
        return False
    graph, index, position = outputs[random.integers(len(outputs))]
    node = graph.node[index]
    name = node.output[position]
    node.output[position] = f"{name}.right"
    inserted = make(node.output[position])
    inserted[-1].output[0] = name
    nodes = [*graph.node[: index + 1], *inserted, *graph.node[index + 1 :]]
    del graph.node[:]
    graph.node.extend(nodes)
    return True


def _replace_last(name: str, value: float, model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Return nodes that replace what is last along the last axis."""
    ends = {"zero": 0, "last": -1, "end": np.iinfo(np.int64).max}
    for key, position in ends.items():
        array = np.array([position], np.int64)
        model.graph.initializer.append(numpy_helper.from_array(array, f"{name}.{key}"))
    zero, last, end = (f"{name}.{key}" for key in ends)
    return [
        helper.make_node("Slice", [name, zero, last, last], [f"{name}.begin"]),
        helper.make_node("Slice", [name, last, end, last], [f"{name}.column"]),
        _binary("Mul", f"{name}.column", np.float32(0), model, f"{name}.zeros"),
        _binary("Add", f"{name}.zeros", np.float32(value), model, f"{name}.filled"),
        helper.make_node("Concat", [f"{name}.begin", f"{name}.filled"], [f"{name}.f"], axis=-1),
    ]


def _binary(
    op: str, name: str, value: np.float32, model: onnx.ModelProto, output: str = ""
) -> onnx.NodeProto:
    constant = f"{name}.{op}"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), constant))
    return helper.make_node(op, [name, constant], [output or f"{name}.faulty"])
