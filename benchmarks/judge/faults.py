"""Faults as kernels and passes have them: planted into a copy of the model that is compiled, while
the reference keeps the model, or into a library's outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from onnx import helper, numpy_helper

from relaxd.contract.tensors import TensorSpec

Array = np.ndarray[Any, Any]
ModelFault = Callable[[onnx.ModelProto, Generator], bool]
"""Changes the model in place; False where it has nothing to change."""
OutputFault = Callable[[Array], None]
"""Changes an output in place; what has no such part stays as it is."""

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger")
_LANES = 16


def drop_bias(model: onnx.ModelProto, random: Generator) -> bool:
    """One bias is not added."""
    names = [node.input[2] for node in _of(model, "Conv", "Gemm") if len(node.input) > 2]
    names += [name for node in _of(model, "Add") for name in node.input]
    return _change(model, random, names, lambda array: 0 * array, least=2)


def swap_channels(model: onnx.ModelProto, random: Generator) -> bool:
    """Two output channels of one weight are swapped."""

    def swap(array: Array) -> Array:
        axis = 0 if array.ndim > 2 else -1
        order = np.arange(array.shape[axis])
        order[[0, -1]] = order[[-1, 0]]
        return np.take(array, order, axis)

    return _change(model, random, _weights(model), swap, least=2)


def shift_pad(model: onnx.ModelProto, random: Generator) -> bool:
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


def scale_weight(model: onnx.ModelProto, random: Generator) -> bool:
    """One weight is multiplied by 1.05, as by a scale of an earlier calibration."""
    return _change(model, random, _weights(model), lambda array: array * np.float32(1.05))


def scale_node(model: onnx.ModelProto, random: Generator) -> bool:
    """The output of one node among all is 2 % too large: one wrong kernel."""
    return _insert(model, random, lambda name: [_binary("Mul", name, np.float32(1.02), model)])


def quantize_again(model: onnx.ModelProto, random: Generator) -> bool:
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


MODEL_FAULTS: Sequence[ModelFault] = (
    drop_bias,
    swap_channels,
    shift_pad,
    scale_weight,
    scale_node,
    quantize_again,
)


def last_column(array: Array) -> None:
    """The last column is never written."""
    if array.ndim and array.shape[-1] > 1:
        array[..., -1] = 0


def last_of_tile(array: Array) -> None:
    """The last lane of each tile holds its neighbour's value."""
    if array.ndim and array.shape[-1] >= _LANES:
        array[..., _LANES - 1 :: _LANES] = array[..., _LANES - 2 :: _LANES][
            ..., : array[..., _LANES - 1 :: _LANES].shape[-1]
        ]


def last_row(array: Array) -> None:
    """The last row is that before it."""
    if array.ndim > 1 and array.shape[-2] > 1:
        array[..., -1, :] = array[..., -2, :]


def mask_edge(array: Array) -> None:
    """One position more than wanted is masked, of the second axis."""
    if array.ndim > 2 and array.shape[1] > 1:
        array[0, -1] = 0


def shift_columns(array: Array) -> None:
    """Everything is one column off."""
    if array.ndim:
        array[...] = np.roll(array, 1, axis=-1)


def hold_constant(array: Array) -> None:
    """The output is its mean throughout."""
    if array.size:
        array[...] = np.asarray(array.astype("f8").mean()).astype(array.dtype)


OUTPUT_FAULTS: dict[str, OutputFault] = {
    fault.__name__: fault
    for fault in (last_column, last_of_tile, last_row, mask_edge, shift_columns, hold_constant)
}
_LEAST_RANKS = {"last_row": 2, "mask_edge": 3}


def is_applicable(fault: str, spec: TensorSpec) -> bool:
    """Tell whether an output of that kind has the part that the fault changes."""
    rank, columns = len(spec.shape), spec.shape[-1].size if spec.shape else 1
    least = _LANES if fault == "last_of_tile" else 2
    return rank >= _LEAST_RANKS.get(fault, 1) and (columns is None or columns >= least)


def _of(model: onnx.ModelProto, *operators: str) -> Iterator[onnx.NodeProto]:
    return (node for node in model.graph.node if node.op_type in operators)


def _weights(model: onnx.ModelProto) -> list[str]:
    return [node.input[1] for node in _of(model, *_WEIGHTED)]


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
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in names]
    for position in random.permutation(len(tensors)):
        array = numpy_helper.to_array(tensors[position])
        if array.size >= least:
            changed = np.asarray(change(array)).astype(array.dtype)
            if not np.array_equal(changed, array):
                tensors[position].CopyFrom(numpy_helper.from_array(changed, tensors[position].name))
                return True
    return False


def _insert(
    model: onnx.ModelProto, random: Generator, make: Callable[[str], list[onnx.NodeProto]]
) -> bool:
    """Put nodes behind one that gives floats; the last of them gives what others read."""
    positions = [index for index, node in enumerate(model.graph.node) if node.op_type in _WEIGHTED]
    positions = [index for index in positions if model.graph.node[index].op_type != "MatMulInteger"]
    if not positions:
        return False
    index = int(positions[random.integers(len(positions))])
    node = model.graph.node[index]
    name = node.output[0]
    node.output[0] = f"{name}.right"
    inserted = make(node.output[0])
    inserted[-1].output[0] = name
    nodes = [*model.graph.node[: index + 1], *inserted, *model.graph.node[index + 1 :]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return True


def _binary(
    op: str, name: str, value: np.float32, model: onnx.ModelProto, output: str = ""
) -> onnx.NodeProto:
    constant = f"{name}.{op}"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), constant))
    return helper.make_node(op, [name, constant], [output or f"{name}.faulty"])
