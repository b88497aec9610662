"""LSTM, GRU and RNN whose weights come through DequantizeLinear, beside ONNX Runtime: one scale,
one for each direction, row or block, of 8 and 4 bits, with zero points in the middle of the range
and not.
"""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler.bundle.weights import separate
from compiler.ir import import_model
from compiler.passes.manager import lower
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.operators.test_recurrent import GATES
from tests.compiler.ir.onnx.running import Arrays, assert_like_onnxruntime, model_of, normal
from tests.compiler.passes import lowered
from tests.support.geometries import GEOMETRIES, geometry

SHAPES = ((1, 1), (5, 2), (3, 7), (2, 25), (7, 9))
INPUTS = 40
RANGES = {"int8": (-127, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15)}
DIMS = {"s": (1, None), "b": (0, None)}


def model(
    kind: str,
    hidden: int,
    dtype: str = "int8",
    axis: int | None = None,
    block: int = 0,
    zero: int | None = None,
    lengths: bool = False,
    quantizes_x: bool = False,
    inputs: int = INPUTS,
    **attributes: Any,
) -> onnx.ModelProto:
    """Over x [s, b, inputs]. axis: of the scales, None for one; zero: the least of the zero points,
    of which there are three different ones.
    """
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates, draw = GATES[kind] * hidden, np.random.default_rng(hidden)
    constants: dict[str, Any] = {"bias": normal(directions, 2 * gates) / 2}
    nodes, tensors = [], []
    for name, depth in (("w", inputs), ("r", hidden)):
        shape = (directions, gates, depth)
        grid: tuple[int, ...] = () if axis is None else (shape[axis],)
        if block:
            grid = tuple(-(-size // block) if d == axis else size for d, size in enumerate(shape))
        low, high = RANGES[dtype]
        integers = draw.integers(low, high, shape, endpoint=True)
        most = (high - low) * np.sqrt(depth)
        constants[f"{name}_s"] = draw.uniform(2 / most, 4 / most, grid).astype(np.float32)
        operands = [f"{name}_q", f"{name}_s"]
        tensors.append(tensor_of(f"{name}_q", integers, dtype))
        # ONNX Runtime takes none for a single one.
        if zero is not None or grid:
            points = np.zeros(grid, int)
            if zero is not None:
                points = zero + np.arange(points.size).reshape(grid) % 3
            tensors.append(tensor_of(f"{name}_z", points, dtype))
            operands.append(f"{name}_z")
        more = {} if axis is None else {"axis": axis} | ({"block_size": block} if block else {})
        nodes.append(helper.make_node("DequantizeLinear", operands, [name], **more))
    left = "x"
    if quantizes_x:
        constants |= {"x_s": np.float32(0.02), "x_z": np.uint8(131)}
        nodes.append(helper.make_node("QuantizeLinear", ["x", "x_s", "x_z"], ["x_q"]))
        nodes.append(helper.make_node("DequantizeLinear", ["x_q", "x_s", "x_z"], ["x_d"]))
        left = "x_d"
    names = [left, "w", "r", "bias", *(["lengths"] if lengths else [])]
    outputs = ["every", "last", "memory"][: 3 if kind == "LSTM" else 2]
    nodes.append(helper.make_node(kind, names, outputs, hidden_size=hidden, **attributes))
    specs = {"x": f"float32[s,b,{inputs}]"} | ({"lengths": "int32[b]"} if lengths else {})
    result = model_of(nodes, specs, constants, opset=21, outputs=outputs)
    result.graph.initializer.extend(tensors)
    result.ir_version = 10
    return result


def tensor_of(name: str, values: Any, dtype: str) -> onnx.TensorProto:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    return numpy_helper.from_array(np.asarray(values).astype(kind), name)


CASES: dict[str, dict[str, Any]] = {
    "one scale": {"kind": "LSTM", "hidden": 16},
    "a scale for each row": {"kind": "GRU", "hidden": 35, "axis": 1, "linear_before_reset": 1},
    "reset before": {"kind": "GRU", "hidden": 24, "axis": 1, "zero": -3},
    "a scale for each direction": {
        "kind": "LSTM",
        "hidden": 33,
        "axis": 0,
        "direction": "bidirectional",
    },
    "unsigned": {"kind": "LSTM", "hidden": 20, "dtype": "uint8", "axis": 1, "zero": 130},
    "unsigned without zero points": {"kind": "RNN", "hidden": 72, "dtype": "uint8"},
    "bytes in blocks": {"kind": "GRU", "hidden": 40, "axis": 2, "block": 16},
    "four bits": {"kind": "LSTM", "hidden": 37, "dtype": "int4", "axis": 1},
    "four bits in blocks": {"kind": "LSTM", "hidden": 40, "dtype": "int4", "axis": 2, "block": 32},
    "four bits in blocks that end early": {
        "kind": "GRU",
        "hidden": 57,
        "dtype": "uint4",
        "axis": 2,
        "block": 16,
        "zero": 6,
    },
    "quantized inputs": {
        "kind": "LSTM",
        "hidden": 26,
        "axis": 1,
        "quantizes_x": True,
        "lengths": True,
        "direction": "bidirectional",
    },
    "weights that leave the cache": {"kind": "GRU", "hidden": 330, "axis": 1, "zero": -2},
}


def feeds(proto: onnx.ModelProto) -> list[Arrays]:
    has_lengths = len(proto.graph.input) > 1
    return [
        {"x": normal(steps, batch, INPUTS)}
        | ({"lengths": (np.arange(batch) % steps + 1).astype(np.int32)} if has_lengths else {})
        for steps, batch in SHAPES
    ]


@pytest.mark.parametrize("case", CASES)
def test_programs_of_the_import(case: str) -> None:
    proto = model(**CASES[case])
    assert_like_onnxruntime(proto, feeds(proto))


@pytest.mark.parametrize("case", CASES)
def test_programs_for_this_processor(case: str) -> None:
    proto = model(**CASES[case])
    lowered.assert_like_onnxruntime(proto, feeds(proto), DIMS)


@pytest.mark.parametrize("unit", GEOMETRIES)
@pytest.mark.parametrize("case", ["unsigned", "four bits in blocks that end early"])
def test_programs_for_other_processors(case: str, unit: str) -> None:
    proto = model(**CASES[case])
    lowered.assert_like_onnxruntime(proto, feeds(proto), DIMS, geometry(unit))


@pytest.mark.parametrize("case", CASES)
def test_weights_stay_integers(case: str) -> None:
    """The constants are hardly larger than those of the file: units fill up blocks of eight."""
    proto = model(**{**CASES[case], "hidden": 256, "inputs": 152})
    imported = import_model(proto, CompileRequest.of(dims=DIMS))
    constants = separate(lower(imported.module, HOST, imported.ranges), smallest=0).constants
    stored = sum(len(tensor.raw_data) for tensor in proto.graph.initializer)
    assert sum(tensor.numpy().nbytes for tensor in constants) <= 1.05 * stored


def test_scales_of_columns_are_dequantized() -> None:
    """A block of rows has one scale for each column: no kernel of the state has them."""
    proto = model("GRU", 24, axis=1, block=24)
    assert_like_onnxruntime(proto, feeds(proto))
