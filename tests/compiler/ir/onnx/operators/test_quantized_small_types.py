"""QuantizeLinear and DequantizeLinear to and from types of 8 bits and fewer."""

import numpy as np
import onnx
import pytest
from onnx import helper

from relaxd.contract.dims.tensors import STORAGE
from tests.compiler.ir.onnx.running import build, normal, session_of
from tests.compiler.ir.onnx.small_type_models import (
    CODES,
    Array,
    assert_same,
    model_of,
    patterns,
    run,
)

NODE = helper.make_node
GRIDS = [dtype for dtype in STORAGE if dtype != "float8_e8m0fnu"]
SCALES = {"tensor": (), "axis": (7,), "blocks": (3, 3)}


def zero_of(dtype: str, shape: tuple[int, ...]) -> Array:
    """The evaluator takes no other than 0 of floats (see below)."""
    if "float" in dtype:
        return np.zeros(shape, dtype)
    few = patterns(dtype)
    return np.resize(few[np.abs(few.astype("f4")) < 3], shape)


def model_for(dtype: str, layout: str, scale: str = "float32") -> onnx.ModelProto:
    shape = SCALES[layout]
    attributes = {"axis": 1, **({"block_size": 3} if layout == "blocks" else {})}
    nodes = [
        NODE("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        NODE("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    constants = {
        "s": np.exp2(np.round(normal(*shape))).astype(scale),
        "z": zero_of(dtype, shape),
    }
    rows = 3 if layout == "blocks" else "n"
    columns = "w" if layout == "blocks" else 7
    outputs = {"q": dtype, "y": scale}
    return model_of(nodes, {"x": (scale, [rows, columns])}, outputs, constants)


def feeds(layout: str, scale: str) -> list[dict[str, Array]]:
    shapes = ((3, 7), (3, 9)) if layout == "blocks" else ((0, 7), (1, 7), (13, 7))
    return [{"x": (normal(*shape) * 5).astype(scale)} for shape in shapes]


@pytest.mark.parametrize("layout", SCALES)
@pytest.mark.parametrize("dtype", GRIDS)
def test_quantizing_and_dequantizing(dtype: str, layout: str) -> None:
    model = model_for(dtype, layout)
    built = build(model)
    for feed in feeds(layout, "float32"):
        assert_same(built, model, feed)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float4_e2m1fn", "int4", "uint2"])
def test_a_scale_of_sixteen_bits(dtype: str) -> None:
    model = model_for(dtype, "axis", "float16")
    built = build(model)
    for feed in feeds("axis", "float16"):
        assert_same(built, model, feed)


@pytest.mark.parametrize("layout", SCALES)
@pytest.mark.parametrize("dtype", [*(t for t in GRIDS if t.startswith("float8")), "int4", "uint4"])
def test_as_onnxruntime_does(dtype: str, layout: str) -> None:
    """Types that it has kernels for; its Python interface has no such arrays."""
    model = model_for(dtype, layout)
    del model.graph.output[0]
    model.opset_import[0].version = 23
    model.ir_version = 11
    built, session = build(model), session_of(model)
    for feed in feeds(layout, "float32"):
        np.testing.assert_array_equal(run(built, feed)["y"], session.run(["y"], feed)[0])


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("dtype", [t for t in GRIDS if t.startswith("float8")])
def test_saturating_is_asked_for(dtype: str, saturate: int) -> None:
    nodes = [
        NODE("QuantizeLinear", ["x", "s"], ["q"], output_dtype=CODES[dtype], saturate=saturate)
    ]
    constants = {"s": np.array(0.5, np.float32)}
    model = model_of(nodes, {"x": ("float32", ["n"])}, {"q": dtype}, constants)
    x = np.array([1, -3, 200, 1e6, -1e6, 0.001, np.inf, -np.inf, np.nan], np.float32)
    assert_same(build(model), model, {"x": x})


@pytest.mark.parametrize("dtype", [t for t in GRIDS if "float" in t])
def test_a_zero_point_of_floats_is_added(dtype: str) -> None:
    """By the formulas, which the evaluator follows one way alone."""
    nodes = [
        NODE("QuantizeLinear", ["x", "s", "z"], ["q"]),
        NODE("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = {"s": np.array(0.5, np.float32), "z": np.array(1.5, dtype)}
    model = model_of(nodes, {"x": ("float32", ["n"])}, {"q": dtype, "y": "float32"}, constants)
    x = np.linspace(-2, 2, 31, dtype=np.float32)
    got = run(build(model), {"x": x})
    wanted = (x / np.float32(0.5) + np.float32(1.5)).astype(dtype)
    np.testing.assert_array_equal(got["q"].view(dtype).astype("f4"), wanted.astype("f4"))
    np.testing.assert_array_equal(got["y"], (wanted.astype("f4") - 1.5) * np.float32(0.5))


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2"])
def test_the_range_saturates_and_ties_go_to_even(dtype: str) -> None:
    nodes = [NODE("QuantizeLinear", ["x", "s"], ["q"], output_dtype=CODES[dtype])]
    constants = {"s": np.array(2, np.float32)}
    model = model_of(nodes, {"x": ("float32", ["n"])}, {"q": dtype}, constants)
    x = np.array([1, 3, 5, -1, -3, 99, -99, 1e30, -1e30, np.inf, -np.inf], np.float32)
    (got,) = run(build(model), {"x": x}).values()
    bits = 2 if dtype.endswith("2") else 4
    low, high = (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    np.testing.assert_array_equal(got, np.clip(np.rint(x / 2), low, high))


def test_constants_fold() -> None:
    """Both grids known at import, and a float that is not folded."""
    constants = {
        "x": normal(5, 7), "s": np.array(0.25, np.float32), "z": np.array(1).astype("int4"),
        "f": np.array(0).astype("float8_e5m2"),
    }  # fmt: skip
    nodes = [
        NODE("QuantizeLinear", ["x", "s", "z"], ["q"]),
        NODE("DequantizeLinear", ["q", "s", "z"], ["y"]),
        NODE("QuantizeLinear", ["x", "s", "f"], ["r"]),
        NODE("DequantizeLinear", ["r", "s", "f"], ["v"]),
    ]
    outputs = {"q": "int4", "y": "float32", "r": "float8_e5m2", "v": "float32"}
    model = model_of(nodes, {"unused": ("float32", ["n"])}, outputs, constants)
    assert_same(build(model), model, {"unused": normal(2)})
