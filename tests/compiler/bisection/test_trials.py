"""The precision of a cut's matmuls, where some of the model's are quantized."""

from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from compiler.bisection.cuts import Cut
from compiler.bisection.trials import Trials
from compiler.bisection.values import Values
from compiler.ir.onnx.model.nodes import Graph
from compiler.isolation.messages import CompileJob
from relaxd.contract.options import Precision
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import model_of, normal


def trials(model: onnx.ModelProto, precision: str) -> Trials:
    request = CompileRequest.of(options={"precision": precision})
    job = CompileJob("model.onnx", request.to_json(), "native", "out", "model")
    values: Any = Values
    return Trials(job, Graph(model, {}), values, {}, Path())


def test_cuts_round_where_they_have_a_layer_that_does() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="rounds"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "few"], ["y"], name="few"),
    ]
    constants = {"w": normal(40, 24), "few": normal(24, 7)}
    model = model_of(nodes, {"x": "float32[n,40]"}, constants, outputs=["y"])
    for precision, wanted in (
        ("int8", (Precision.INT8, Precision.FLOAT32, Precision.FLOAT32)),
        ("bfloat16", (Precision.FLOAT32,) * 3),
    ):
        all_trials = trials(model, precision)
        cuts = (frozenset({0, 1}), frozenset({1}), frozenset({1, 2}))
        assert tuple(all_trials._precision(Cut(cut, ("y",))) for cut in cuts) == wanted
