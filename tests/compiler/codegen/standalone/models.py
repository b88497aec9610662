"""Small models of every form that a driver has to write, and their builds."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler import api

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
_value = helper.make_tensor_value_info
_node = helper.make_node


def _model(nodes, inputs, outputs, weights: Mapping[str, np.ndarray] | None = None):
    initializers = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def perceptron() -> onnx.ModelProto:
    """x[n, 32] through two layers, whose weights lie in a file."""
    draw = np.random.default_rng(0)
    weights = {
        "w": draw.standard_normal((32, 48)).astype("float32"),
        "b": draw.standard_normal(48).astype("float32"),
        "v": draw.standard_normal((48, 7)).astype("float32"),
    }
    nodes = [
        _node("Gemm", ["x", "w", "b"], ["h"]),
        _node("Relu", ["h"], ["r"]),
        _node("MatMul", ["r", "v"], ["y"]),
    ]
    return _model(nodes, [_value("x", FLOAT, ["n", 32])], [_value("y", FLOAT, ["n", 7])], weights)


def nonzero() -> onnx.ModelProto:
    """The elements of x[a, b] that are not 0, squared, and where they are."""
    nodes = [
        _node("NonZero", ["x"], ["places"]),
        _node("Transpose", ["places"], ["rows"]),
        _node("GatherND", ["x", "rows"], ["v"]),
        _node("Mul", ["v", "v"], ["y"]),
    ]
    outputs = [_value("y", FLOAT, ["k"]), _value("rows", INT64, ["k", 2])]
    return _model(nodes, [_value("x", FLOAT, ["a", "b"])], outputs)


def choosing() -> onnx.ModelProto:
    """x * x + x where the sum of x[n, 4] is positive, else sqrt(relu(x)) + x."""
    one = helper.make_graph(
        [_node("Mul", ["x", "x"], ["p"])], "t", [], [_value("p", FLOAT, ["n", 4])]
    )
    other = helper.make_graph(
        [_node("Relu", ["x"], ["q0"]), _node("Sqrt", ["q0"], ["q"])],
        "e",
        [],
        [_value("q", FLOAT, ["n", 4])],
    )
    nodes = [
        _node("ReduceSum", ["x"], ["s"], keepdims=0),
        _node("Greater", ["s", "zero"], ["c"]),
        _node("If", ["c"], ["r"], then_branch=one, else_branch=other),
        _node("Add", ["r", "x"], ["y"]),
    ]
    inputs, outputs = [_value("x", FLOAT, ["n", 4])], [_value("y", FLOAT, ["n", 4])]
    return _model(nodes, inputs, outputs, {"zero": np.array(0, np.float32)})


def weighing() -> onnx.ModelProto:
    """x[n, 4] * 2 where the sum of x is positive, else x times a matrix that only this branch has,
    of 8 KB.
    """
    matrix = np.random.default_rng(0).standard_normal((4, 512)).astype("float32")
    spread = helper.make_tensor("w", FLOAT, (4, 512), matrix.tobytes(), raw=True)
    result = [_value("r", FLOAT, ["n", 512])]
    one = helper.make_graph(
        [_node("Tile", ["x", "times"], ["t"]), _node("Mul", ["t", "two"], ["r"])], "t", [], result
    )
    other = helper.make_graph([_node("MatMul", ["x", "w"], ["r"])], "e", [], result, [spread])
    nodes = [
        _node("ReduceSum", ["x"], ["s"], keepdims=0),
        _node("Greater", ["s", "zero"], ["c"]),
        _node("If", ["c"], ["y"], then_branch=one, else_branch=other),
    ]
    constants: dict[str, np.ndarray] = {
        "zero": np.array(0, np.float32),
        "two": np.array(2, np.float32),
        "times": np.array([1, 128], np.int64),
    }
    inputs, outputs = [_value("x", FLOAT, ["n", 4])], [_value("y", FLOAT, ["n", 512])]
    return _model(nodes, inputs, outputs, constants)


def counting() -> onnx.ModelProto:
    """`trips` times: the state grows by a row of x[n, 4], its sum is kept."""
    body = helper.make_graph(
        [
            _node("Concat", ["state", "row"], ["more"], axis=0),
            _node("Identity", ["go"], ["on"]),
            _node("ReduceSum", ["more"], ["sum"], keepdims=0),
        ],
        "b",
        [_value("i", INT64, []), _value("go", BOOL, []), _value("state", FLOAT, ["m", 4])],
        [_value("on", BOOL, []), _value("more", FLOAT, ["k", 4]), _value("sum", FLOAT, [])],
    )
    nodes = [
        _node("Slice", ["x", "first", "last"], ["row"]),
        _node("Loop", ["trips", "", "x"], ["y", "sums"], body=body),
    ]
    weights = {"first": np.array([0], np.int64), "last": np.array([1], np.int64)}
    inputs = [_value("x", FLOAT, ["n", 4]), _value("trips", INT64, [])]
    outputs = [_value("y", FLOAT, ["rows", 4]), _value("sums", FLOAT, ["steps"])]
    return _model(nodes, inputs, outputs, weights)


def build_bundle(
    model: onnx.ModelProto,
    folder: Path,
    name: str,
    dims: Mapping[str, object],
    flavour: str = "standalone",
) -> Path:
    """A bundle for this machine, neither verified nor profiled."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    options = {"flavour": flavour, "verify": False, "profile": False}
    api.compile_model(path, output=folder / name, dims=dims, options=options)
    return folder / name
