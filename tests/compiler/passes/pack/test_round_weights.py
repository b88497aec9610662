"""Weights that are stored in fewer bits: which are, and what the kernels give."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

from compiler.bundle.weights import separate
from compiler.codegen.generate import generate
from compiler.ir import import_model
from compiler.ir.onnx.model.weights import quantize_weights
from compiler.ir.weights import LEAST, QuantizedWeights
from compiler.passes.manager import to_kernels, to_machine, to_quantization
from compiler.passes.pack.round_weights import RoundWeights
from compiler.quantize.module_plan import complete, pass_of
from compiler.quantize.plan import plan_graph
from compiler.targets import Target
from relaxd.contract.options import CompileOptions, WeightForm
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.running import Built, assert_close, model_of, normal, session_of
from tests.compiler.passes.processors import nearest

pytestmark = pytest.mark.slow

DEPTH, HIDDEN, WORDS = 128, 300, 131
FORMS = ["float16", "int8", "int4"]


def language_model() -> onnx.ModelProto:
    """Rows of a table, two matmuls, one of whose weights is transposed by a node, and the products
    with all rows of the table.
    """
    constants = {
        "table": normal(WORDS, DEPTH, seed=1),
        "up": normal(DEPTH, HIDDEN, seed=2) / 11,
        "down": normal(DEPTH, HIDDEN, seed=3) / 17,
        "bias": normal(DEPTH, seed=4),
        "small": normal(DEPTH, 7, seed=5),
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("MatMul", ["x", "up"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Transpose", ["down"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["r", "turned"], ["d"]),
        helper.make_node("Add", ["d", "bias"], ["y"]),
        helper.make_node("Transpose", ["table"], ["columns"], perm=[1, 0]),
        helper.make_node("MatMul", ["y", "columns"], ["logits"]),
        helper.make_node("MatMul", ["y", "small"], ["few"]),
    ]
    return model_of(nodes, {"ids": "int64[n,m]"}, constants, outputs=["logits", "few"])


def compile_model(
    model: onnx.ModelProto, form: str, target: Target = HOST, **dims: Any
) -> tuple[Built, QuantizedWeights, int]:
    """The library, what became of the weights, and the bytes of the constants."""
    options = CompileOptions(weights=WeightForm(form)).to_json()
    request = CompileRequest.of(dims=dims, options=options)
    imported, plan = import_model(model, request), plan_graph(model, request)
    quantization = pass_of(plan, request, imported, target)
    assert isinstance(quantization, RoundWeights)
    module = to_quantization(imported.module, target, imported.ranges, quantization)
    plan, planned = complete(plan, quantization, module, None, None)
    assert plan.weights is not None
    kernels = to_kernels(module, target, imported.ranges, (), planned, planned=True)
    constant_bytes = sum(tensor.numpy().nbytes for tensor in separate(kernels).constants)
    executable = generate(to_machine(kernels, target, imported.ranges), target)
    return (
        Built(imported, relax.VirtualMachine(executable, tvm.cpu())),
        plan.weights,
        constant_bytes,
    )


def quantized_session(model: onnx.ModelProto, weights: QuantizedWeights) -> Any:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    quantize_weights(copy, weights.roundings)
    return session_of(copy)


@pytest.mark.parametrize("form", FORMS)
def test_outputs_are_those_of_the_quantized_model(form: str) -> None:
    model = language_model()
    built, weights, constant_bytes = compile_model(model, form, n=(1, 4), m=(1, 80))
    assert set(weights.stored.layers) == {"table", "up", "down"}
    assert not weights.stored.kept
    reference, plain = quantized_session(model, weights), session_of(model)
    for shape in ((1, 1), (2, 3), (1, 11), (3, 67)):
        feed = {"ids": np.random.default_rng(0).integers(-WORDS, WORDS, shape)}
        got, want = built.run(feed), reference.run(None, feed)
        assert_close(got, want, ["logits", "few"])
        assert np.abs(got[0] - plain.run(None, feed)[0]).max() > np.abs(got[0] - want[0]).max()
    # Panels are filled up; the tied table is there once.
    assert constant_bytes < 1.4 * sum(one.bytes for one in weights.stored.layers.values())


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_float16_in_every_width_of_vectors_without_an_instruction(target: str) -> None:
    """Block-wise quantized weights have such tests with their kernels."""
    model = language_model()
    machine = replace(nearest(target), isa=())
    built, weights, _ = compile_model(model, "float16", machine, n=(1, 4), m=(1, 80))
    session = quantized_session(model, weights)
    for shape in ((1, 1), (3, 23)):
        feed = {"ids": np.random.default_rng(1).integers(0, WORDS, shape)}
        assert_close(built.run(feed), session.run(None, feed), ["logits", "few"])


def test_projections_are_combined_as_those_of_floats_are() -> None:
    """Heads of queries, keys and values come from one matmul, of which each has some columns."""
    model = attention()
    built, weights, constant_bytes = compile_model(model, "int4", n=(1, 40))
    assert set(weights.stored.layers) == {"q", "k", "v"}
    assert constant_bytes < 1.4 * sum(one.bytes for one in weights.stored.layers.values())
    session = quantized_session(model, weights)
    for rows in (1, 7, 40):
        feed = {"x": normal(1, rows, DEPTH)}
        assert_close(built.run(feed), session.run(None, feed), ["y"])


def attention() -> onnx.ModelProto:
    constants = {name: normal(DEPTH, DEPTH, seed=i) / 11 for i, name in enumerate("qkv")}
    constants["heads"] = np.array([1, -1, 4, DEPTH // 4])
    nodes = []
    for name in "qkv":
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            helper.make_node("MatMul", ["x", name], [f"{name}1"]),
            helper.make_node("Reshape", [f"{name}1", "heads"], [f"{name}2"]),
            helper.make_node("Transpose", [f"{name}2"], [f"{name}3"], perm=perm),
        ]
    nodes += [
        helper.make_node("MatMul", ["q3", "k3"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v3"], ["y"]),
    ]
    return model_of(nodes, {"x": f"float32[1,n,{DEPTH}]"}, constants, outputs=["y"])


def checked_build(
    nodes: list[onnx.NodeProto], weight: np.ndarray, outputs: list[str]
) -> QuantizedWeights:
    inputs = {"x": f"float32[n,{weight.shape[0]}]", "k": f"float32[n,{weight.shape[1]}]"}
    model = model_of(nodes, inputs, {"w": weight}, outputs=outputs)
    built, weights, _ = compile_model(model, "int8", n=(1, 9))
    feed = {"x": normal(5, weight.shape[0]), "k": normal(5, weight.shape[1])}
    want = session_of(model).run(None, feed)
    if np.isfinite(weight).all():
        assert_close(built.run(feed), want, outputs)
    return weights


def test_why_weights_stay() -> None:
    """Weights that another operator reads too, that sums go along both ways, and that nobody
    multiplies.
    """
    weight = normal(128, 128)
    matmul = helper.make_node("MatMul", ["x", "w"], ["y"])
    other = helper.make_node("Mul", ["x", "w"], ["z"])
    turned = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["k", "t"], ["z"]),
    ]
    shared = model_of([matmul, other], {"x": "float32[128,128]"}, {"w": weight}, outputs=["y", "z"])
    assert "other operators" in compile_model(shared, "int8")[1].stored.kept["w"]
    assert "rows and along" in checked_build([matmul, *turned], weight, ["y", "z"]).stored.kept["w"]
    unused = model_of([other], {"x": "float32[128,128]"}, {"w": weight}, outputs=["z"])
    assert "no matmul" in compile_model(unused, "int8")[1].stored.kept["w"]
    weight[3, 5] = np.inf
    assert "not finite" in checked_build([matmul], weight, ["y"]).stored.kept["w"]


def test_small_weights_are_not_mentioned() -> None:
    matmul = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = checked_build([matmul], normal(LEAST // 128, 127), ["y"])
    assert not weights.stored.layers
    assert not weights.stored.kept
    assert not weights.roundings
