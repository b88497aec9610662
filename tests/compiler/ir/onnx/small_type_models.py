"""Models of types of 8 bits and fewer, run beside onnx's own evaluator."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.ir.onnx.model.dtypes import CARRIED
from relaxd.contract.dims.tensors import STORAGE, storage_of
from tests.compiler.ir.onnx.running import Built

CODES = {name: code for code, name in CARRIED.items()}
Array = np.ndarray[Any, Any]


def patterns(dtype: str) -> Array:
    """Every element of a type, in an order that mixes them."""
    bits = 8 if dtype.startswith("float8") else 2 if dtype.endswith("2") else 4
    codes = np.random.default_rng(0).permutation(1 << bits).astype(np.uint8)
    return codes.view(dtype) if "float" in dtype else codes.astype(dtype)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Sequence[Any]]],
    outputs: Mapping[str, str],
    constants: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "narrow",
        [helper.make_tensor_value_info(n, CODES[d], s) for n, (d, s) in inputs.items()],
        [helper.make_tensor_value_info(n, CODES[d], None) for n, d in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)


def bytes_of(array: Array) -> Array:
    """The bytes of an array."""
    name = array.dtype.name
    if name not in STORAGE:
        return array
    return array.view(np.uint8) if "float" in name else array.astype(storage_of(name))


def run(built: Built, feed: Mapping[str, Array]) -> dict[str, Array]:
    outputs = built.run({name: bytes_of(array) for name, array in feed.items()})
    return dict(zip((spec.name for spec in built.imported.outputs), outputs, strict=True))


def evaluate(model: onnx.ModelProto, feed: Mapping[str, Array]) -> dict[str, Array]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [output.name for output in model.graph.output]
        return dict(zip(names, ReferenceEvaluator(model).run(names, dict(feed)), strict=True))


def assert_same(built: Built, model: onnx.ModelProto, feed: Mapping[str, Array]) -> None:
    """The outputs are those of onnx's evaluator."""
    assert_equal(built, run(built, feed), evaluate(model, feed))


def assert_equal(built: Built, got: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    """Every output of the declared type, its numbers equal."""
    for spec in built.imported.outputs:
        theirs = want[spec.name]
        assert spec.dtype == theirs.dtype.name, spec
        assert got[spec.name].dtype == storage_of(spec.dtype)
        ours = got[spec.name]
        if spec.dtype in STORAGE and "float" in spec.dtype:
            ours = ours.view(theirs.dtype)
        np.testing.assert_array_equal(
            ours.astype(np.float64), theirs.astype(np.float64), err_msg=spec.name
        )
