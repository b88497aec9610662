"""Dequantized constant weights that stay integers, beside the dequantized model."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.quantize.onnx.dequantized_weights import keep_weights_quantized
from tests.compiler.ir.onnx.running import build, model_of, normal

KINDS = {
    "int4": (TensorProto.INT4, -8, 7),
    "uint4": (TensorProto.UINT4, 0, 15),
    "int8": (TensorProto.INT8, -128, 127),
    "uint8": (TensorProto.UINT8, 0, 255),
}

Array = np.ndarray[Any, Any]


def integers(kind: str, shape: tuple[int, ...], seed: int = 0) -> tuple[Array, onnx.TensorProto]:
    """Numbers, and the tensor that has them."""
    code, low, high = KINDS[kind]
    values = np.random.default_rng(seed).integers(low, high + 1, shape)
    return values, helper.make_tensor("", code, shape, values.reshape(-1).tolist())


def model_with(
    kind: str, scales: tuple[int, ...], block: int, zeros: bool, depth: int = 100, axis: int = 0
) -> tuple[onnx.ModelProto, Array]:
    """A MatMul of x [n, depth] by dequantized weights [depth, 48], and what these stand for."""
    values, weight = integers(kind, (depth, 48))
    points, zero = integers(kind, scales, seed=1)
    scale = np.abs(normal(*scales)) / 20 + np.float32(0.01)
    inputs = ["w", "s", "z"] if zeros else ["w", "s"]
    more = {"block_size": block} if block else {}
    nodes = [
        helper.make_node("DequantizeLinear", inputs, ["real"], axis=axis, **more),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    model = model_of(nodes, {"x": f"float32[n,{depth}]"}, {"s": scale}, opset=21, outputs=["y"])
    model.ir_version = 10
    for name, tensor in (("w", weight), ("z", zero))[: 1 + zeros]:
        tensor.name = name
        model.graph.initializer.append(tensor)

    def spread(part: Array) -> Array:
        wide = np.repeat(part, block, 0)[:depth] if block else part
        return np.broadcast_to(wide, values.shape)

    middle = spread(points) if zeros else 0
    return model, (values - middle) * spread(scale).astype(np.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("scales", "block", "axis"), [((4, 48), 32, 0), ((48,), 0, 1), ((), 0, 1)])
def test_matmuls(kind: str, zeros: bool, scales: tuple[int, ...], block: int, axis: int) -> None:
    model, weight = model_with(kind, scales, block, zeros, axis=axis)
    rewritten = keep_weights_quantized(model)
    assert [node.op_type for node in rewritten.graph.node] == ["MatMulNBits"]
    stored = next(one for one in rewritten.graph.initializer if "weights" in one.name)
    padded = 128
    assert numpy_helper.to_array(stored).nbytes == 48 * padded * (1 if "8" in kind else 0.5)
    built = build(rewritten)
    for rows in (1, 5):
        x = normal(rows, 100)
        np.testing.assert_allclose(built.run({"x": x})[0], x @ weight, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("bias", [None, "b"])
@pytest.mark.parametrize(("kind", "block"), [("int8", 0), ("uint4", 32)])
@pytest.mark.parametrize(
    "attributes", [{}, {"transB": 1}, {"alpha": 0.5, "beta": 3.0, "transB": 1}, {"beta": 0.0}]
)
def test_linear_layers(kind: str, block: int, attributes: dict[str, Any], bias: str | None) -> None:
    """Gemm by matrices of either orientation, beside onnx's own evaluation: ONNX Runtime rounds
    what such matrices multiply.
    """
    transposed = bool(attributes.get("transB"))
    shape = (48, 100) if transposed else (100, 48)
    _, weight = integers(kind, shape)
    axis = int(transposed) if block else int(not transposed)
    grid: tuple[int, ...] = (48,)
    if block:
        grid = (48, 4) if transposed else (4, 48)
    _, zero = integers(kind, grid, seed=1)
    constants = {"s": np.abs(normal(*grid)) / 20 + np.float32(0.01), "b": normal(48)}
    more = {"block_size": block} if block else {}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["real"], axis=axis, **more),
        helper.make_node("Gemm", ["x", "real", *([bias] if bias else [])], ["y"], **attributes),
    ]
    model = model_of(nodes, {"x": "float32[n,100]"}, constants, opset=21, outputs=["y"])
    model.ir_version = 10
    for name, tensor in (("w", weight), ("z", zero)):
        tensor.name = name
        model.graph.initializer.append(tensor)
    rewritten = keep_weights_quantized(model)
    assert "MatMulNBits" in [node.op_type for node in rewritten.graph.node]
    assert "DequantizeLinear" not in [node.op_type for node in rewritten.graph.node]
    built = build(rewritten)
    for rows in (1, 5):
        feed = {"x": normal(rows, 100)}
        (want,) = ReferenceEvaluator(model).run(None, feed)
        np.testing.assert_allclose(built.run(feed)[0], want, rtol=1e-4, atol=1e-3)


def test_scales_by_row_stay_dequantized() -> None:
    model, _ = model_with("int8", (100, 1), 0, False, axis=0)
    scale = next(one for one in model.graph.initializer if one.name == "s")
    scale.dims[:] = [100]
    assert keep_weights_quantized(model) is model


def test_small_weights_stay_dequantized() -> None:
    model, _ = model_with("int8", (), 0, False, depth=8)
    assert keep_weights_quantized(model) is model


def test_rows_of_a_table_are_dequantized() -> None:
    values, table = integers("uint8", (200, 32))
    table.name = "w"
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["real"]),
        helper.make_node("Gather", ["real", "x"], ["y"]),
    ]
    constants = {"s": np.float32(0.03), "z": np.array(7, np.uint8)}
    model = model_of(nodes, {"x": "int64[n,m]"}, constants, outputs=["y"])
    model.graph.initializer.append(table)
    rewritten = keep_weights_quantized(model)
    assert [node.op_type for node in rewritten.graph.node] == ["Gather", "DequantizeLinear"]
    index = np.array([[0, 199, 3]])
    (rows,) = build(rewritten).run({"x": index})
    np.testing.assert_allclose(rows, (values[index] - 7.0) * 0.03, rtol=1e-6)
