"""Products by constant float weights on integers of 8 bits, beside ONNX Runtime and numpy."""

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

from compiler.codegen.generate import generate
from compiler.ir import import_model
from compiler.passes.framework.kernel_notes import KernelNote
from compiler.passes.manager import to_kernels, to_machine
from compiler.quantize.onnx.matmuls import MatmulQuantization
from compiler.quantize.onnx.row_matmuls import RowMatmuls
from compiler.quantize.plan import plan_graph, quantize_graph
from relaxd.contract.options import CompileOptions, Precision
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.running import Built, assert_close, model_of, normal, session_of
from tests.support.geometries import has_int8

pytestmark = pytest.mark.slow


def exact(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Rows of x by columns of the weight, by the rule, in float64."""
    steps = np.abs(x).max(-1, keepdims=True) / 127
    scales = np.abs(weight).max(0) / 127
    rows = np.rint(x / np.where(steps, steps, 1))
    return (rows @ np.rint(weight / np.where(scales, scales, 1))) * steps * scales


def check(
    model: onnx.ModelProto,
    feeds: list[dict[str, Any]],
    chosen: MatmulQuantization | None = None,
    **dims: Any,
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Compares the library with the model whose nodes round, in ONNX Runtime; the last results."""
    matmuls = RowMatmuls(model, chosen.scales if chosen else {})
    session, plain = session_of(matmuls.quantize()), session_of(model)
    built = built_of(model, chosen, **dims)
    names = [output.name for output in model.graph.output]
    for feed in feeds:
        got, want = built.run(feed), session.run(None, feed)
        assert_close(got, want, names)
        other = plain.run(None, feed)
        for result, floats in zip(got, other, strict=True):
            # Of each row or image, which have scales of their own.
            for mine, theirs in zip(result, floats, strict=True):
                apart = np.square(mine - theirs).mean() / max(np.square(theirs).mean(), 1e-30)
                assert apart < 0.05**2
    return got, matmuls.layers.layers


def built_of(
    model: onnx.ModelProto, chosen: MatmulQuantization | None = None, **dims: Any
) -> Built:
    """The library, some of whose kernels multiply bytes."""
    options = CompileOptions(precision=Precision.INT8).to_json()
    request = CompileRequest.of(dims=dims, options=options)
    plan = plan_graph(model, request, chosen)
    imported = import_model(quantize_graph(model, plan), request)
    assert plan.layers == RowMatmuls(model).layers
    kernels = to_kernels(imported.module, HOST, imported.ranges)
    families = {
        KernelNote.of(function).family
        for function in kernels.functions.values()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    assert ("int8" in families) == has_int8()
    executable = generate(to_machine(kernels, HOST, imported.ranges), HOST)
    return Built(imported, relax.VirtualMachine(executable, tvm.cpu()))


@pytest.mark.parametrize(("depth", "columns"), [(16, 8), (33, 48), (127, 100), (384, 97)])
def test_matmul(depth: int, columns: int) -> None:
    weights = {"w": normal(depth, columns, seed=1), "b": normal(columns, seed=2)}
    weights["w"][:, 3] = 0
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    model = model_of(nodes, {"x": f"float32[n,{depth}]"}, weights, outputs=["y"])
    feeds = [{"x": normal(rows, depth, seed=rows)} for rows in (1, 2, 5, 7, 13, 31, 67)]
    feeds[2]["x"][1], feeds[3]["x"][2] = 0, 30 * feeds[3]["x"][2]
    (got,), layers = check(model, feeds, n=(1, 80))
    assert layers == ("product",)
    want = np.maximum(exact(feeds[-1]["x"], weights["w"]) + weights["b"], 0)
    # A number in the middle of two may go to the other one.
    assert np.abs(got - want).mean() < 1e-4 * np.abs(want).mean()


def test_rows_with_numbers_that_are_not_finite() -> None:
    """They are NaN in every column, and others are as they would be without them."""
    depth = 64
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="p")]
    model = model_of(nodes, {"x": f"float32[n,{depth}]"}, {"w": normal(depth, 33)}, outputs=["y"])
    x = normal(40, depth)
    bad = {i % 40: i % depth for i in range(0, 35 * 7, 7)}
    for number, (row, column) in enumerate(bad.items()):
        x[row, column] = (np.nan, np.inf, -np.inf)[number % 3]
    good = [row for row in range(40) if row not in bad]
    assert good
    x[good[0]] = 1e-42
    built = built_of(model, n=(1, 40))
    (got,) = built.run({"x": x})
    assert np.isnan(got[list(bad)]).all()
    assert (got[good[0]] == 0).all()
    (alone,) = built.run({"x": x[good]})
    np.testing.assert_array_equal(got[good], alone)


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_gemm(transposed: int, bias: bool) -> None:
    weight = normal(24, 40, seed=1) if transposed else normal(40, 24, seed=1)
    constants = {"w": weight, **({"b": normal(24, seed=2)} if bias else {})}
    attributes = {"transB": transposed, "alpha": 0.5, "beta": 2.0}
    inputs = ["x", "w", *(["b"] if bias else [])]
    nodes = [helper.make_node("Gemm", inputs, ["y"], name="gemm", **attributes)]
    model = model_of(nodes, {"x": "float32[n,40]"}, constants, outputs=["y"])
    _, layers = check(model, [{"x": normal(n, 40, seed=n)} for n in (1, 3, 9)], n=(1, 9))
    assert layers == ("gemm",)


CONVOLUTIONS = {
    # channels, columns, kernel, strides, pads, dilations
    "pointwise": (48, 40, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "pointwise, strides": (33, 8, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    "3x3": (24, 19, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "3x3, odd channels, strides": (17, 50, (3, 3), (2, 1), (1, 0, 2, 1), (1, 1)),
    "dilation": (8, 16, (2, 3), (1, 1), (1, 2, 1, 2), (1, 2)),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case: str) -> None:
    channels, columns, kernel, strides, pads, dilations = CONVOLUTIONS[case]
    weights = {"w": normal(columns, channels, *kernel, seed=1), "b": normal(columns, seed=2)}
    attributes = {"strides": strides, "pads": pads, "dilations": dilations}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = model_of(nodes, {"x": f"float32[n,{channels},h,w]"}, weights, outputs=["y"])
    sizes = ((1, 7, 7), (2, 9, 13), (1, 19, 8))
    feeds = [{"x": normal(n, channels, h, w, seed=h)} for n, h, w in sizes]
    feeds[1]["x"][1] *= 10
    _, layers = check(model, feeds, n=(1, 2), h=(7, 32), w=(7, 32))
    assert layers == ("conv",)


def test_what_stays_and_why() -> None:
    constants = {
        "w": normal(40, 24),
        "whole": np.rint(3 * normal(40, 24)),
        "few": normal(40, 7),
        "short": normal(15, 24),
        "stack": normal(2, 40, 24),
        "deep": normal(32, 1, 3, 3),
        "thin": normal(32, 7, 3, 3),
    }
    inputs = {"x": "float32[n,40]", "z": "float32[n,15]", "i": "float32[n,32,9,9]",
              "j": "float32[n,7,9,9]"}  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="rounds"),
        helper.make_node("MatMul", ["x", "whole"], ["b"], name="whole"),
        helper.make_node("MatMul", ["x", "few"], ["c"], name="few"),
        helper.make_node("MatMul", ["z", "short"], ["d"], name="short"),
        helper.make_node("MatMul", ["x", "stack"], ["e"], name="stack"),
        helper.make_node("Conv", ["i", "deep"], ["f"], name="depthwise", group=32),
        helper.make_node("Conv", ["j", "thin"], ["g"], name="thin"),
        helper.make_node("Gemm", ["x", "x"], ["h"], name="computed", transB=1),
    ]
    model = model_of(nodes, inputs, constants, outputs=list("abcdefgh"))
    layers = RowMatmuls(model).layers
    assert layers.layers == ("rounds",)
    reasons = {
        "whole": "integers",
        "few": "8 columns",
        "short": "16 products",
        "stack": "no matrix",
        "depthwise": "groups",
        "thin": "8 channels",
        "computed": "no constant",
    }
    assert set(layers.kept) == set(reasons)
    for label, part in reasons.items():
        assert part in layers.kept[label]


@pytest.mark.parametrize("depth", [16, 33, 127])
def test_channels_that_are_scaled(depth: int) -> None:
    """A channel of each row is 500 times the others, which then keep their digits."""
    weights = {"w": normal(depth, 24, seed=1), "v": normal(40, depth, seed=2), "b": normal(40)}
    weights["w"][3] /= 500
    weights["v"][:, 3] /= 500
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="matmul"),
        helper.make_node("Gemm", ["x", "v", "b"], ["z"], name="gemm", transB=1, alpha=0.5),
    ]
    model = model_of(nodes, {"x": f"float32[n,{depth}]"}, weights, outputs=["y", "z"])
    feeds = [{"x": normal(rows, depth, seed=rows)} for rows in (1, 2, 7, 8, 13, 31)]
    for feed in feeds:
        feed["x"][:, 3] *= 500
    scales = np.ones(depth, np.float32)
    scales[3] = 500
    (y, z), layers = check(model, feeds, MatmulQuantization(scales={"x": scales}), n=(1, 40))
    assert layers == ("matmul", "gemm")
    x = feeds[-1]["x"] / scales
    np.testing.assert_allclose(y, exact(x, weights["w"] * scales[:, None]), atol=2e-3)
    wanted = exact(x, weights["v"].T * scales[:, None]) / 2 + weights["b"]
    np.testing.assert_allclose(z, wanted, atol=2e-3)


def test_layers_that_are_kept() -> None:
    weights = {"w": normal(32, 24, seed=1), "v": normal(24, 16, seed=2)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="one"),
        helper.make_node("MatMul", ["h", "v"], ["y"], name="two"),
    ]
    model = model_of(nodes, {"x": "float32[n,32]"}, weights, outputs=["y"])
    options = CompileOptions(precision=Precision.INT8).to_json()
    request = CompileRequest.of(dims={"n": (1, 9)}, options=options)
    plan = plan_graph(model, request, MatmulQuantization({"one": "it is told to"}))
    assert plan.layers is not None
    assert plan.layers.layers == ("two",)
    assert plan.layers.kept == {"one": "it is told to"}
    operators = [node.op_type for node in quantize_graph(model, plan).graph.node]
    assert (operators[0], operators.count("Round")) == ("MatMul", 1)
