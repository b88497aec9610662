"""Division of integers by run-time values: nothing that they hold ends the process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.compiler.ir.divisions import by_numpy, operands
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build, model_of
from tests.support.hostile import FORMS, Refused, build_hostile, run

WIDTHS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


def nodes(x: str = "x", y: str = "y") -> list[Any]:
    return [
        helper.make_node("Div", [x, y], ["div"], name="some_quotient"),
        helper.make_node("Mod", [x, y], ["mod"], name="some_remainder"),
        helper.make_node("Mod", [x, y], ["fmod"], fmod=1),
    ]


@pytest.mark.parametrize("dtype", WIDTHS)
def test_every_width_divides_as_numpy(dtype: str) -> None:
    machine = build(model_of(nodes(), {"x": f"{dtype}[n]", "y": f"{dtype}[n]"}))
    for count in (0, 1, 8, 13, 64, 67, 1000):
        x, y = operands(dtype, count)
        for got, want in zip(machine.run({"x": x, "y": y}), by_numpy(x, y).values(), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_no_divisor_ends_the_process(form: str, tmp_path: Path) -> None:
    graph = model_of(nodes(), {"x": "int64[n]", "y": "int64[n]"})
    bundle = build_hostile(graph, tmp_path / "b", form)
    x, y = operands("int64", 20)
    got = run(bundle, {"x": x, "y": y})
    for name, want in by_numpy(x, y).items():
        np.testing.assert_array_equal(got[name], want)
    for i in (0, 7, 19):
        zero = y.copy()
        zero[i] = 0
        with pytest.raises(Refused, match="Div 'some_quotient': integer division by zero"):
            run(bundle, {"x": x, "y": zero})


def test_nothing_is_divided_by_a_zero_of_no_elements() -> None:
    machine = build(model_of(nodes(), {"x": "int32[n,2]", "y": "int32[1]"}))
    empty = machine.run({"x": np.zeros((0, 2), "int32"), "y": np.zeros(1, "int32")})
    assert [array.shape for array in empty] == [(0, 2)] * 3
    with pytest.raises(Exception, match="match_cast error"):
        machine.run({"x": np.zeros((1, 2), "int32"), "y": np.zeros(1, "int32")})


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("divisor", [-1, 7, [3, -1]])
def test_constant_divisors_wrap_around(dtype: str, divisor: Any) -> None:
    least = np.iinfo(dtype).min
    x = np.array([[least, 5], [-7, least], [least + 1, least]], dtype)
    y = np.array(divisor, dtype)
    machine = build(model_of(nodes(y="c"), {"x": f"{dtype}[n,2]"}, {"c": y}))
    wanted = by_numpy(x, np.broadcast_to(y, x.shape))
    for got, want in zip(machine.run({"x": x}), wanted.values(), strict=True):
        np.testing.assert_array_equal(got, want)


def test_constants_fold_as_they_run() -> None:
    least = np.iinfo("int64").min
    x, y = np.array([least, least, -7, 7]), np.array([-1, 3, 2, -2])
    machine = build(model_of(nodes(), {"z": "float32[n]"}, {"x": x, "y": y}))
    got = machine.run({"z": np.zeros(1, "float32")})
    for array, want in zip(got, by_numpy(x, y).values(), strict=True):
        np.testing.assert_array_equal(array, want)


def test_extents_are_divided_by_extents_that_are_checked() -> None:
    shapes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Div", ["n", "k"], ["part"], name="shares"),
        helper.make_node("ConstantOfShape", ["part"], ["y"]),
    ]
    machine = build(model_of(shapes, {"x": "float32[n]", "k": "int64[1]"}, outputs=["y"]))
    x = np.zeros(13, "float32")
    assert machine.run({"x": x, "k": np.array([4])})[0].shape == (3,)
    with pytest.raises(Exception, match="match_cast error"):
        machine.run({"x": x, "k": np.array([0])})


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_mean_of_no_integers_is_zero(dtype: str) -> None:
    mean = helper.make_node("ReduceMean", ["x"], ["y"], axes=[0])
    at_run_time = helper.make_node("ReduceMean", ["x", "a"], ["y"])
    feeds = [{"x": np.array([[-7, 3], [2, 2], [0, 9]], dtype)}, {"x": np.zeros((0, 2), dtype)}]
    assert_like_onnxruntime(model_of([mean], {"x": f"{dtype}[n,2]"}, opset=13), feeds)
    machine = build(model_of([at_run_time], {"x": f"{dtype}[n,2]", "a": "int64[1]"}))
    for feed, want in zip(feeds, ([[-1, 4]], [[0, 0]]), strict=True):
        np.testing.assert_array_equal(machine.run({**feed, "a": np.array([0])})[0], want)
