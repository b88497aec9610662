"""Some nodes of a model as a model of their own, with declared inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from compiler.ir.onnx.model.nodes import Graph
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Cut:
    """nodes: with the bookkeeping that they need; outputs: the values that are compared."""

    nodes: frozenset[int]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Declared:
    """The inputs of a cut, and the dims that their axes carry."""

    inputs: tuple[TensorSpec, ...]
    dims: tuple[Dim, ...]


def model_of(
    graph: Graph,
    nodes: frozenset[int],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """Nodes as a model, with the constants that they read."""
    return graph.model_of(nodes, [_input(spec) for spec in inputs], outputs)


def _input(spec: TensorSpec) -> onnx.ValueInfoProto:
    axes = [axis.text if axis.size is None else axis.size for axis in spec.shape]
    return helper.make_tensor_value_info(spec.name, _element(spec.dtype), axes)


def output(name: str, dtype: str, rank: int | None) -> onnx.ValueInfoProto:
    """The declaration of an output, whose axes the nodes before it decide."""
    axes = None if rank is None else [None] * rank
    return helper.make_tensor_value_info(name, _element(dtype), axes)


def _element(dtype: str) -> int:
    if dtype == "bfloat16":
        return int(onnx.TensorProto.BFLOAT16)
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def declare_fixed(arrays: Mapping[str, Array]) -> Declared:
    """Inputs of the very shapes of the arrays."""
    specs = (
        TensorSpec(name, array.dtype.name, tuple(Axis(str(size)) for size in array.shape))
        for name, array in arrays.items()
    )
    return Declared(tuple(specs), ())


def symbolic(
    arrays: Mapping[str, Array], specs: Mapping[str, TensorSpec], request: CompileRequest
) -> Declared:
    """Inputs with the axes that the values have in the whole model, so that their kernels are those
    of the whole model.

    An axis whose dims do not follow from the sizes of the inputs becomes a dim of its own.
    """
    axes = {
        name: specs[name].shape if name in specs else tuple(Axis(str(n)) for n in array.shape)
        for name, array in arrays.items()
    }
    bound = _solve(arrays, axes)
    fresh: dict[str, str] = {}
    inputs = []
    for name, array in arrays.items():
        shape = [
            _keep_or_rename(axis, size, bound, fresh)
            for axis, size in zip(axes[name], array.shape, strict=True)
        ]
        inputs.append(TensorSpec(name, array.dtype.name, tuple(shape)))
    used = {name for spec in inputs for axis in spec.shape for name in axis.dims}
    dims = (request.dim_table.get(name) or Dim(name, min(1, bound[name])) for name in sorted(used))
    return Declared(tuple(inputs), tuple(dims))


def _solve(arrays: Mapping[str, Array], axes: Mapping[str, tuple[Axis, ...]]) -> dict[str, int]:
    """The dims' values that follow from the arrays' shapes."""
    pairs = [
        (axis, size)
        for name, array in arrays.items()
        for axis, size in zip(axes[name], array.shape, strict=True)
    ]
    bound: dict[str, int] = {}
    for _ in pairs:
        for axis, size in pairs:
            solution = axis.solve(size, bound)
            if solution and solution[1] >= 0:
                bound[solution[0]] = solution[1]
    return bound


def _keep_or_rename(axis: Axis, size: int, bound: dict[str, int], fresh: dict[str, str]) -> Axis:
    if axis.dims <= bound.keys() and _agrees(axis, size, bound):
        return axis
    if axis.size is not None:
        return Axis(str(size))
    name = fresh.setdefault(f"{axis.text}={size}", f"cut_{len(fresh)}")
    bound[name] = size
    return Axis(name)


def _agrees(axis: Axis, size: int, bound: Mapping[str, int]) -> bool:
    try:
        return axis.evaluate(bound) == size
    except ZeroDivisionError:
        return False
