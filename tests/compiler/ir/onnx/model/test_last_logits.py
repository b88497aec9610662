"""Logits of the last token: the row that the whole model computes, and models of which it cannot be
taken.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxd
from compiler.errors import ImportFailed
from compiler.ir.onnx.model.last_logits import keep_last_logits
from relaxd.contract.options import CompileOptions, LogitsForm
from tests.compiler.building import build, report
from tests.compiler.ir.onnx.running import normal, session_of

WIDTH, WORDS = 8, 11
HEAD = numpy_helper.from_array(normal(WIDTH, WORDS, seed=1), "head")
BIAS = numpy_helper.from_array(normal(1, WORDS, seed=2), "bias")
CAP = numpy_helper.from_array(np.array(3, np.float32), "cap")
SIMPLE = [("MatMul", "h head", "logits")]
CAPPED = [
    ("MatMul", "h head", "a"),
    ("Add", "bias a", "b"),
    ("Div", "b cap", "c"),
    ("Tanh", "c", "d"),
    ("Mul", "d cap", "logits"),
]


def model_of(tail: list[tuple[str, str, str]], *others: str) -> onnx.ModelProto:
    """h = x + x, then the tail; the values that are named are outputs too."""
    nodes = [helper.make_node("Add", ["x", "x"], ["h"])]
    nodes += [helper.make_node(op, inputs.split(), [output]) for op, inputs, output in tail]
    graph = helper.make_graph(
        nodes,
        "scores",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "s", WIDTH])],
        [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", "s", WORDS]),
            *(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "s", f"w_{name}"])
                for name in others
            ),
        ],
        [HEAD, BIAS, CAP],
        value_info=[helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", "s", WORDS])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("tail", [SIMPLE, CAPPED])
def test_the_last_row_is_that_of_all(tail: list[tuple[str, str, str]]) -> None:
    complete, cut = model_of(tail, "h"), model_of(tail, "h")
    keep_last_logits(cut)
    onnx.checker.check_model(cut, full_check=True)
    for n, s in ((1, 1), (2, 3), (3, 7)):
        x = normal(n, s, WIDTH)
        want, hidden = session_of(complete).run(None, {"x": x})
        got, other = session_of(cut).run(None, {"x": x})
        assert got.shape == (n, 1, WORDS)
        np.testing.assert_allclose(got, want[:, -1:], rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(other, hidden)


def test_models_whose_scores_come_of_something_else_are_refused() -> None:
    turned = [("MatMul", "h head", "a"), ("Transpose", "a", "logits")]
    by_rows = [("MatMul", "h head", "a"), ("Mul", "a a", "logits")]
    for model in (
        model_of([("Identity", "h", "logits")]),
        model_of(turned),
        model_of(by_rows),
        model_of([("MatMul", "h head", "a"), ("Identity", "a", "logits")], "a"),
        model_of([("MatMul", "h x", "logits")]),
    ):
        before = model.SerializeToString()
        with pytest.raises(ImportFailed, match="cannot be computed alone") as caught:
            keep_last_logits(model)
        assert caught.value.code == "import.logits"
        assert model.SerializeToString() == before
    model = model_of(SIMPLE)
    model.graph.output[0].name = "scores"
    model.graph.node[-1].output[0] = "scores"
    with pytest.raises(ImportFailed, match="no output 'logits'"):
        keep_last_logits(model)


def test_a_library_has_them(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model_of(CAPPED), path)
    options = CompileOptions(profile=False, logits=LogitsForm.LAST)
    build(tmp_path / "out", path, dims={"n": (1, 4), "s": (1, 9)}, options=options)
    assert report(tmp_path / "out", "numerics.json")["verdict"] == "passed"
    library, x = relaxd.load(tmp_path / "out", threads=1), normal(2, 5, WIDTH)
    (want,) = session_of(model_of(CAPPED)).run(None, {"x": x})
    got = library.run({"x": x})["logits"]
    assert got.shape == (2, 1, WORDS)
    np.testing.assert_allclose(got, want[:, -1:], rtol=1e-5, atol=1e-5)
