"""Moves a model's weights and inputs by about an ulp: how far the reference's outputs then move is
how far they are uncertain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    import onnx

Array = np.ndarray[Any, Any]

SCALE = 2.0**-21
"""The standard deviation of a relative perturbation of float32: sums of products in another order
differ by as much as if their operands were moved by some four ulp.
"""
_LEAST_ELEMENTS = 16
"""Constants of fewer elements are sizes, scales of a resize, thresholds and epsilons."""


def perturb(array: Array, random: np.random.Generator) -> Array:
    """Floats each moved by a random share of themselves, other dtypes as they are; zeros,
    infinities and NaNs stay.
    """
    name = array.dtype.name
    if name not in ("float64", "float32", "float16", "bfloat16"):
        return array
    scale = max(SCALE, float(ml_dtypes.finfo(array.dtype).eps)) if name != "float64" else SCALE
    work = np.float64 if name == "float64" else np.float32
    moves = np.asarray(scale * random.standard_normal(array.shape)).astype(work)
    return np.asarray(np.multiply(array.astype(work), 1 + moves).astype(array.dtype))


def perturb_inputs(inputs: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """The inputs of a point, perturbed."""
    random = np.random.default_rng([seed, 1])
    return {name: perturb(array, random) for name, array in inputs.items()}


def perturb_weights(model: onnx.ModelProto, seed: int) -> None:
    """Perturb the large constants of floats in place, subgraphs' included."""
    from onnx import numpy_helper

    random = np.random.default_rng([seed, 2])
    for tensor in _constants(model.graph):
        if np.prod(tensor.dims) >= _LEAST_ELEMENTS:
            array = numpy_helper.to_array(tensor)
            moved = perturb(array, random)
            if moved is not array:
                tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t"):
                yield attribute.t
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _constants(inner)
