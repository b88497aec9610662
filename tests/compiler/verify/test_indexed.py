"""Indices of equal and nearly equal values: planted ties pass, planted faults do not."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.build import build
from compiler.isolation.messages import CompileJob
from compiler.verify.inputs import array_file
from compiler.verify.inputs.inputs import Trial
from compiler.verify.inputs.points import Point
from compiler.verify.judge.evidence import Evidence, Finding, Indexed, judge_beside
from compiler.verify.judge.tolerance import Spread, Tolerance
from compiler.verify.reference.indexed import Source, sources_of
from compiler.verify.sides import Budget, Reference
from compiler.verify.uncertainty import Answers, perturb_in_turn, show_indexed
from relaxd.contract.bundle.numerics import Verdict
from relaxd.contract.request import CompileRequest
from tests.compiler.building import report

Array = np.ndarray[Any, Any]

ROWS, COUNT = 64, 50


def scores() -> Array:
    return np.random.default_rng(0).standard_normal((ROWS, COUNT)).astype("float32")


def judge(got: Array, want: Array, values: Array, *perturbed: Array) -> Finding:
    indexed = Indexed(values, -1, tuple(perturbed))
    answers = tuple(side.argmax(-1) for side in perturbed) if want.ndim == 1 else ()
    evidence = Evidence(perturbed=answers, indexed=indexed)
    return judge_beside(got, want, evidence, Tolerance(0.0, 0.0), Spread.of(want))


@pytest.mark.parametrize("apart", [0.0, 1e-7])
def test_the_other_of_two_equal_values_is_right(apart: float) -> None:
    values = scores()
    values[:, 7] = values.max(-1) + 1
    values[:, 31] = values[:, 7] * (1 - apart)
    want, got = values.argmax(-1), values.argmax(-1)
    got[::3] = 31
    finding = judge(got, want, values)
    assert (finding.verdict, finding.difference.problem) == (Verdict.PASSED, None)
    assert finding.measures["changed"] == pytest.approx(1 / 3, abs=0.02)


def test_a_wrong_index_is_wrong_however_many_others_are_uncertain() -> None:
    """Perturbed references change eight rows, and the library has two wrong ones beside them."""
    values = scores()
    values[:8, 3] = values[:8].max(-1) + 1
    values[:8, 4] = values[:8, 3] * (1 - 1e-7)
    moved = values.copy()
    moved[:8, 4] *= 1 + 1e-6
    want, got = values.argmax(-1), moved.argmax(-1)
    assert judge(got, want, values, moved).verdict is Verdict.PASSED
    got[20:22] = (got[20:22] + 1) % COUNT
    assert judge(got, want, values, moved).verdict is Verdict.FAILED


@pytest.mark.parametrize("wrong", [-1, COUNT, COUNT + 7])
def test_an_index_beyond_the_values_is_wrong(wrong: int) -> None:
    values = np.zeros((ROWS, COUNT), "float32")
    want = values.argmax(-1)
    got = want.copy()
    got[5] = wrong
    assert judge(got, want, values).verdict is Verdict.FAILED


def test_equal_ones_of_the_greatest_may_be_exchanged_but_none_occurs_twice() -> None:
    values = scores()
    values[:, 9] = values[:, 40] = values.max(-1) + 1
    want = np.argsort(-values, axis=-1, kind="stable")[:, :4]
    got = want.copy()
    got[:, [0, 1]] = got[:, [1, 0]]
    assert judge(got, want, values).verdict is Verdict.PASSED
    got[3, 0] = got[3, 1]
    assert judge(got, want, values).verdict is Verdict.FAILED
    got = want.copy()
    got[:, [1, 2]] = got[:, [2, 1]]
    assert judge(got, want, values).verdict is Verdict.FAILED


def test_integers_have_no_uncertain_order() -> None:
    values = np.zeros((ROWS, COUNT), "int32")
    want = values.argmax(-1)
    assert judge(want + 1, want, values).verdict is Verdict.FAILED


def model(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 24])],
        [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in outputs],
        [helper.make_tensor("k", TensorProto.INT64, [1], [3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def two_means() -> list[onnx.NodeProto]:
    """Twice the same number in each row, computed in two ways."""
    return [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1]),
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Exp", ["x"], ["power"]),
        helper.make_node("Log", ["power"], ["again"]),
        helper.make_node("ReduceMean", ["again"], ["other"], axes=[1]),
        helper.make_node("Concat", ["mean", "other"], ["scores"], axis=1),
        helper.make_node("ArgMax", ["scores"], ["index"], axis=-1, keepdims=0),
    ]


def test_sources_are_found_through_operators_that_keep_the_order(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ArgMin", ["x"], ["least"], axis=1),
        helper.make_node("Squeeze", ["least"], ["narrow"]),
        helper.make_node("Cast", ["narrow"], ["a"], to=TensorProto.INT32),
        helper.make_node("TopK", ["x", "k"], ["values", "b"]),
        helper.make_node("Transpose", ["b"], ["c"]),
        helper.make_node("Shape", ["x"], ["d"]),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(model(nodes, ["a", "b", "c", "d"]), path)
    assert sources_of(path) == {"a": Source("x", 1), "b": Source("x", -1)}


def test_references_are_asked_what_indices_point_into(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model(two_means(), ["index"]), path)
    trial = Trial(0, Point("any", {"n": 5}), tmp_path / "0.inputs.arrays", 0)
    x = np.random.default_rng(0).standard_normal((5, 24)).astype("float32")
    array_file.write(trial.inputs, {"x": x})
    reference = Reference(path, {})
    known, shown = show_indexed(Answers(), [trial], ["index"], reference, tmp_path, Budget())
    *_, known = perturb_in_turn(known, lambda: [trial], shown, (), tmp_path, Budget())
    indexed = known.evidence(trial, "index").indexed
    assert indexed is not None
    for values in (indexed.values, *indexed.perturbed):
        np.testing.assert_allclose(values, np.repeat(x.mean(1, keepdims=True), 2, 1), atol=1e-5)
    assert len(indexed.perturbed) == 3
    assert show_indexed(Answers(), [trial], ["x"], reference, tmp_path, Budget())[1] is reference


def test_a_model_of_ties_passes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model(two_means(), ["index"]), path)
    request = CompileRequest.of(dims={"n": (1, 200)}, options={"profile": False})
    job = CompileJob(
        model=str(path),
        model_name="ties",
        output=str(tmp_path / "out"),
        target="native",
        request=request.to_json(),
    )
    build(job)
    assert report(tmp_path / "out", "numerics.json")["verdict"] == Verdict.PASSED
