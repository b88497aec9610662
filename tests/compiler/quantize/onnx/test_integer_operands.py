"""Matmuls of dequantized bytes as matmuls of integers, beside onnx's own evaluation."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from compiler.quantize.onnx.integer_operands import multiply_integers
from tests.compiler.ir.onnx.running import model_of

NODE = helper.make_node
INTEGER_OPERATORS = {"Conv": "ConvInteger", "Gemm": "MatMulInteger", "MatMul": "MatMulInteger"}

Array = np.ndarray[Any, Any]


def model_with(
    node: onnx.NodeProto, weight: Array, scale: Array, zero: Array, axis: int, kind: str, x: str
) -> onnx.ModelProto:
    """The node between a quantized input and weights, with a bias where it takes one."""
    draw, columns = np.random.default_rng(3), weight.shape[0 if node.op_type == "Conv" else 1]
    constants = {
        "xs": np.float32(0.07),
        "xz": np.array(5, kind),
        "w": weight,
        "ws": scale,
        "wz": zero,
        "b": draw.standard_normal(columns).astype("float32"),
    }
    nodes = [
        NODE("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        NODE("DequantizeLinear", ["xq", "xs", "xz"], ["xf"]),
        NODE("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=axis),
        node,
    ]
    return model_of(nodes, {"x": x}, constants, outputs=["y"])


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def same(model: onnx.ModelProto, shapes: list[tuple[int, ...]]) -> list[str]:
    """The operators of the rewritten model, whose results are those of the original."""
    rewritten = multiply_integers(model)
    draw = np.random.default_rng(5)
    for shape in shapes:
        feed = {"x": draw.standard_normal(shape).astype("float32") * 4}
        (want,), (got,) = (ReferenceEvaluator(one).run(None, feed) for one in (model, rewritten))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return operators(rewritten)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(("columns", "groups"), [(4, 1), (6, 3)])
def test_convolutions(kind: str, columns: int, groups: int) -> None:
    draw = np.random.default_rng(1)
    weight = draw.integers(-127, 128, (columns, 3 // groups, 3, 2)).astype("int8")
    scale = draw.random(columns).astype("float32")
    node = NODE("Conv", ["xf", "wf", "b"], ["y"], group=groups, pads=[1, 0, 1, 1], strides=[2, 1])
    zero = np.zeros(columns, "int8")
    model = model_with(node, weight, scale, zero, 0, kind, "float32[n,3,h,w]")
    names = same(model, [(1, 3, 3, 3), (2, 3, 5, 7)])
    assert "ConvInteger" in names
    assert "Conv" not in names
    assert "DequantizeLinear" not in names


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(("op", "transposed"), [("MatMul", False), ("Gemm", True), ("Gemm", False)])
@pytest.mark.parametrize("zeros", [0, 3])
def test_matmuls(kind: str, op: str, transposed: bool, zeros: int) -> None:
    draw = np.random.default_rng(2)
    weight = draw.integers(-127, 128, (7, 5)).astype("int8")
    scale, zero = draw.random(5).astype("float32"), np.full(5, zeros, "int8")
    more = {"transB": 1} if transposed else {}
    inputs = ["xf", "wf", "b"] if op == "Gemm" else ["xf", "wf"]
    node = NODE(op, inputs, ["y"], **more)
    model = model_with(
        node, weight.T.copy() if transposed else weight, scale, zero, int(not transposed), kind,
        "float32[n,7]",
    )  # fmt: skip
    if transposed:
        bias = next(one for one in model.graph.initializer if one.name == "b")
        bias.CopyFrom(onnx.numpy_helper.from_array(np.ones(5, "float32"), "b"))
    names = same(model, [(1, 7), (4, 7)])
    assert "MatMulInteger" in names
    assert op not in names


@pytest.mark.parametrize("zeros", [0, 2])
@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_convolutions_by_four_bits(kind: int, zeros: int) -> None:
    """They are multiplied as bytes: no kernel of a convolution reads less."""
    draw, low = np.random.default_rng(1), -8 if kind == TensorProto.INT4 else 0
    values = draw.integers(low, low + 16, (4, 3, 3, 2))
    weight, scale = np.zeros((4, 3, 3, 2), "int8"), draw.random(4).astype("float32")
    node = NODE("Conv", ["xf", "wf", "b"], ["y"], pads=[1, 0, 1, 1])
    zero = np.zeros(4, "int8")
    model = model_with(node, weight, scale, zero, 0, "uint8", "float32[n,3,h,w]")
    for tensor in model.graph.initializer:
        if tensor.name in ("w", "wz"):
            numbers = values if tensor.name == "w" else np.full(4, zeros)
            tensor.CopyFrom(
                helper.make_tensor(tensor.name, kind, numbers.shape, numbers.reshape(-1).tolist())
            )
    model.opset_import[0].version, model.ir_version = 21, 10
    names = same(model, [(1, 3, 3, 3), (2, 3, 5, 7)])
    assert "ConvInteger" in names
    assert "Conv" not in names


def test_groups_less_a_zero_point_stay_in_floats() -> None:
    """Weights less their zero points take nine bits, and groups have no sum that they share."""
    weight, scale, zero = (
        np.ones((6, 1, 3, 3), "int8"),
        np.array(0.5, "float32"),
        np.array(3, "int8"),
    )
    node = NODE("Conv", ["xf", "wf", "b"], ["y"], group=3)
    model = model_with(node, weight, scale, zero, 0, "uint8", "float32[n,3,h,w]")
    assert multiply_integers(model) is model


def _changed(change: str) -> onnx.ModelProto:
    weight, scale, zero = np.ones((7, 5), "int8"), np.array(0.5, "float32"), np.array(0, "int8")
    attributes, axis = {}, 1
    if change == "alpha":
        attributes = {"alpha": 2.0}
    elif change == "scales by row":
        scale, zero, axis = np.ones(7, "float32"), np.zeros(7, "int8"), 0
    elif change == "16 bits":
        weight, zero = weight.astype("int16"), zero.astype("int16")
    node = NODE("Gemm", ["xf", "wf", "b"], ["y"], **attributes)
    return model_with(node, weight, scale, zero, axis, "uint8", "float32[n,7]")


@pytest.mark.parametrize("change", ["alpha", "scales by row", "16 bits"])
def test_other_matmuls_stay_in_floats(change: str) -> None:
    model = _changed(change)
    assert multiply_integers(model) is model


def test_weights_that_a_caller_may_change_stay_in_floats() -> None:
    model = _changed("nothing")
    assert "MatMulInteger" in operators(multiply_integers(model))
    model.graph.input.append(helper.make_tensor_value_info("w", onnx.TensorProto.INT8, [7, 5]))
    assert multiply_integers(model) is model
