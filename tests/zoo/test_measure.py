from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.zoo.case import Case, Exporter, feed_of, sizes
from tests.zoo.exporting import ExportError
from tests.zoo.measure import Measured, Outcome, compare, measure, reference

pytestmark = pytest.mark.slow


def _model(path, operator="Add"):
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    nodes = [
        helper.make_node("Cast", ["ids"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node(operator, ["x", "floats"], ["y"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "small", [ids, x], [y]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, path)
    return path


def _case(path, **declared):
    return Case(
        "small", lambda: path, {"n": "1:9"}, sizes("n", (1,), (2,), (3,), (7,), (9,)), **declared
    )


def test_inputs_follow_the_file_their_bounds_and_what_the_case_makes_itself(tmp_path):
    path = _model(tmp_path / "small.onnx")
    feed = feed_of(_case(path, draw={"ids": 100}), path, {"n": 500})
    assert {name: (array.shape, array.dtype) for name, array in feed.items()} == {
        "ids": ((500,), "int64"),
        "x": ((500,), "float32"),
    }
    assert feed["ids"].max() in range(90, 100)
    assert feed["ids"].min() >= 0
    created = feed_of(
        _case(path, feeds=lambda point, generator: {"x": np.arange(point["n"])}), path, {"n": 3}
    )
    assert created["x"].tolist() == [0, 1, 2]


def test_a_case_within_the_tolerance_and_one_that_is_not(tmp_path):
    path = _model(tmp_path / "small.onnx")
    case = _case(path)
    feeds = [feed_of(case, path, point) for point in case.points]
    wanted = reference(path, feeds)
    stored = compare(case, path, feeds, wanted)
    assert (stored.outcome, stored.points, len(stored.worst)) == (Outcome.OK, case.points, 5)
    off = compare(case, path, feeds, [*wanted[:4], {"y": wanted[4]["y"] + 0.5}])
    assert off.outcome is Outcome.WRONG
    elsewhere = compare(case.build(None, "512/32"), path, feeds, wanted)
    assert (elsewhere.outcome, elsewhere.worst) == (Outcome.OK, stored.worst)
    assert off.worst[4] > 0.1 > max(off.worst[:4])


def test_a_case_of_vanishing_outputs_proves_nothing(tmp_path):
    path = _model(tmp_path / "small.onnx", "Mul")
    case = _case(path)
    feeds = [feed_of(case, path, point) for point in case.points]
    dim = [{**feed, "x": feed["x"] * np.float32(1e-11)} for feed in feeds]
    small = compare(case, path, dim, reference(path, dim))
    assert (small.outcome, small.unproven) == (Outcome.PROVES_NOTHING, ["y"])
    assert max(small.worst) <= 1e-6, "they agree, by their own size"
    assert Measured.from_json(small.to_json()) == small


def test_failures_are_told_apart(tmp_path):
    def unexportable():
        raise ExportError("Traceback\n...\nUnsupportedOperatorError: no such operator")

    export = measure(Case("none", unexportable, {}, (), exporter=Exporter.DYNAMO))
    assert (export.outcome, export.error) == (
        Outcome.EXPORT,
        "UnsupportedOperatorError: no such operator",
    )
    path = _model(tmp_path / "small.onnx")
    unknown = measure(Case("small", lambda: path, {"n": "1:9", "m": "1:9"}, sizes("n", (1,))))
    assert unknown.outcome is Outcome.REFUSED
    assert "m" in unknown.error
    broken = measure(_case(_model(tmp_path / "broken.onnx", "NoSuchOperator")))
    assert broken.outcome is Outcome.REFERENCE


def test_a_case_without_its_package_is_skipped():
    measured = measure(Case("lacking", Path, {}, (), needs="no_such_package"))
    assert (measured.outcome, measured.error) == (
        Outcome.SKIPPED,
        "the package no_such_package is not installed",
    )


def test_a_redeclared_input_takes_any_size(tmp_path):
    path = tmp_path / "fixed.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "fixed", [x], [y])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    feed = {"x": np.arange(-6, 6, dtype=np.float32).reshape(3, 4)}
    (created,) = reference(path, [feed], {"x": "float32[n,4]"})
    np.testing.assert_array_equal(created["y"], feed["x"].clip(0))
