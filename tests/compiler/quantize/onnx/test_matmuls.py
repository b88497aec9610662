"""Models that round the operands of some nodes."""

import numpy as np
import onnx
from onnx import helper

from compiler.ir.onnx.model.matmuls import matmul_labels
from compiler.passes.pack.pairs import round_to_bfloat
from compiler.quantize.onnx.matmuls import cast_operands
from tests.compiler.ir.onnx.running import model_of, normal, session_of


def model(opset: int = 17) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="one"),
        helper.make_node("Relu", ["p"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
        helper.make_node("MatMul", ["y", "w"], ["z"], name="three"),
    ]
    proto = model_of(nodes, {"x": "float32[n,24]"}, {"w": normal(24, 24)}, outputs=["p", "y", "z"])
    proto.opset_import[0].version = opset
    return proto


def test_nodes_are_known_by_names_that_no_other_has() -> None:
    proto = model()
    assert matmul_labels(proto) == {"one", "y", "three"}
    proto.graph.node[3].name = "relu"
    assert matmul_labels(proto) == {"one", "y"}


def test_both_operands_are_cast_where_they_are_read() -> None:
    x, w = normal(7, 24, seed=3), normal(24, 24)
    for opset in (17, 11):
        session = session_of(cast_operands(model(opset), ["one"]))
        p, y, _ = session.run(None, {"x": x})
        want = round_to_bfloat(x) @ round_to_bfloat(w)
        np.testing.assert_allclose(p, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(y, np.maximum(p, 0) @ w, rtol=1e-4, atol=1e-4)
    assert np.abs(p - x @ w).max() > 1e-3


def test_a_perturbation_moves_few_numbers() -> None:
    x = normal(7, 24, seed=3)
    plain, perturbed = (
        session_of(cast_operands(model(), ["one"], perturbation)).run(None, {"x": x})[0]
        for perturbation in (0.0, 2.0**-21)
    )
    np.testing.assert_allclose(perturbed, plain, atol=1e-5)
    # The number lies just below the middle of its neighbours.
    x[:] = np.float32(1 + 2**-8 - 2**-23)
    plain, perturbed = (
        session_of(cast_operands(model(), ["one"], perturbation)).run(None, {"x": x})[0]
        for perturbation in (0.0, 2.0**-21)
    )
    np.testing.assert_allclose(perturbed, plain * (1 + 2**-7), rtol=1e-3, atol=1e-5)
