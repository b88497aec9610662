"""Dequantized constant weights that stay integers, beside the dequantized model."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.bundle.weights import separate
from compiler.ir import import_model
from compiler.passes.manager import lower
from compiler.quantize.onnx.dequantized_weights import keep_weights_quantized
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.running import build, model_of, normal, session_of
from tests.compiler.passes import lowered

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


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("kind", "zero", "shape", "attributes"),
    [
        ("int8", 0, (24, 20, 3, 3), {"pads": [1, 0, 1, 2]}),
        ("uint4", 7, (24, 20, 3, 3), {"strides": [2, 1], "dilations": [1, 2]}),
        ("int8", 0, (70, 64, 1, 1), {}),
        ("int4", -2, (32, 16, 3, 3), {"group": 2}),
        ("int8", 0, (40, 32, 5), {}),
    ],
)
def test_convolutions_of_floats(
    kind: str, zero: int, shape: tuple[int, ...], attributes: dict[str, Any], per_channel: bool
) -> None:
    """Their weights stay bytes on every processor, and their results are those of the model."""
    channels, axes = shape[1] * attributes.get("group", 1), "hv"[: len(shape) - 2]
    code, low, high = KINDS[kind]
    grid = (shape[0],) if per_channel else ()
    values = np.random.default_rng(0).integers(low, high + 1, shape)
    tensors = [
        helper.make_tensor("w", code, shape, np.maximum(values, -127).reshape(-1).tolist()),
        helper.make_tensor("z", code, grid, [zero] * max(grid[0] if grid else 1, 1)),
    ]
    scale = np.abs(normal(*grid)).astype(np.float32) / 50 + np.float32(0.01)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["real"], axis=0),
        helper.make_node("Conv", ["x", "real", "b"], ["y"], **attributes),
    ]
    inputs = {"x": f"float32[n,{channels},{','.join(axes)}]"}
    model = model_of(nodes, inputs, {"s": scale, "b": normal(shape[0])}, opset=21, outputs=["y"])
    model.graph.initializer.extend(tensors)
    model.ir_version = 10
    rewritten, dims = keep_weights_quantized(model), dict.fromkeys(("n", *axes), (1, None))
    built = lowered.build(rewritten, dims)
    for images, extent in ((1, 5), (2, 14)):
        feed = {"x": normal(images, channels, *[extent] * len(axes))}
        (want,) = session_of(model).run(None, feed)
        np.testing.assert_allclose(built.run(feed)[0], want, rtol=1e-4, atol=1e-3)
    imported = import_model(rewritten, CompileRequest.of(dims=dims))
    constants = separate(lower(imported.module, HOST, imported.ranges), smallest=1024).constants
    assert {one.numpy().dtype for one in constants} == {np.dtype(np.int8)}


@pytest.mark.parametrize("change", ["one channel each", "nine bits", "blocks"])
def test_other_convolutions_stay_dequantized(change: str) -> None:
    shape = (600, 1, 3, 3) if change == "one channel each" else (24, 20, 3, 3)
    _, weight = integers("uint8", shape)
    grid: tuple[int, ...] = (24, 20, 3, 1) if change == "blocks" else ()
    more = {"axis": 3, "block_size": 3} if change == "blocks" else {}
    zero = 90 if change == "nine bits" else 128
    constants = {"s": np.full(grid, 0.5, np.float32), "z": np.full(grid, zero, np.uint8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["real"], **more),
        helper.make_node("Conv", ["x", "real"], ["y"], group=600 if shape[1] == 1 else 1),
    ]
    inputs = {"x": f"float32[n,{600 if shape[1] == 1 else 20},h,v]"}
    model = model_of(nodes, inputs, constants, opset=21, outputs=["y"])
    weight.name = "w"
    model.graph.initializer.append(weight)
    assert keep_weights_quantized(model) is model


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
