"""Integers that only run time knows, of any sign, as ranges, bounds, extents, pads and counts."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.compiler.ir.onnx.running import (
    Arrays,
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
    session_of,
)

NODE = helper.make_node
INT64_MAX, INT64_MIN = (1 << 63) - 1, -(1 << 63)


def assert_as_strict(model: Any, feeds: Sequence[Arrays]) -> int:
    """The model, compiled once, gives what ONNX Runtime gives, and an error where that does; gives
    the number of errors.
    """
    built, session, errors = build(model), session_of(model), 0
    names = [output.name for output in model.graph.output]
    for feed in feeds:
        try:
            wanted = session.run(None, dict(feed))
        except Exception:
            errors += 1
            with pytest.raises(RuntimeError, match="match_cast"):
                built.run(feed)
            continue
        assert_close(built.run(feed), wanted, names)
    return errors


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "float32", "float64"])
def test_a_range_goes_either_way(dtype: str) -> None:
    names = ("start", "limit", "delta")
    model = model_of([NODE("Range", names, ["y"])], dict.fromkeys(names, f"{dtype}[]"))
    triples = list(product((-3, 0, 4, 7), (-7, -1, 0, 5), (-3, -1, 0, 1, 2)))
    feeds = [
        {name: np.array(value, dtype) for name, value in zip(names, triple, strict=True)}
        for triple in triples
    ]
    assert assert_as_strict(model, feeds) == sum(delta == 0 for *_, delta in triples)


@pytest.mark.parametrize(("start", "limit", "delta"), [(0, None, -1), (None, 0, 1), (0, None, 1)])
def test_a_range_beside_constants(start: int | None, limit: int | None, delta: int) -> None:
    constants = {
        name: np.array(value)
        for name, value in (("start", start), ("limit", limit), ("delta", delta))
        if value is not None
    }
    model = model_of(
        [NODE("Range", ["start", "limit", "delta"], ["y"])],
        {"start" if start is None else "limit": "int64[]"},
        constants,
    )
    free = model.graph.input[0].name
    assert_like_onnxruntime(model, [{free: np.array(k)} for k in (-7, -1, 0, 1, 6)])


def test_a_range_as_long_as_numbers_are_apart() -> None:
    nodes = [
        NODE("ReduceMax", ["lengths"], ["most"], keepdims=0),
        NODE("ReduceMin", ["lengths"], ["least"], keepdims=0),
        NODE("Sub", ["least", "most"], ["start"]),
        NODE("Range", ["start", "zero", "one"], ["steps"]),
        NODE("Cast", ["steps"], ["floats"], to=1),
        NODE("Exp", ["floats"], ["y"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1)}
    model = model_of(nodes, {"lengths": "int64[b]"}, constants, outputs=["y"])
    rows = ([7, 1, 4], [3], [5, 5], [-3, 9])
    assert_like_onnxruntime(model, [{"lengths": np.array(row)} for row in rows])


def test_what_no_run_can_compute_with_is_refused() -> None:
    names = ("start", "limit", "delta")
    built = build(model_of([NODE("Range", names, ["y"])], dict.fromkeys(names, "int64[]")))
    for triple in ((INT64_MIN, 0, 1), (0, INT64_MAX, 1), (0, 1 << 41, 1), (0, 1, INT64_MIN)):
        feed = {name: np.array(value) for name, value in zip(names, triple, strict=True)}
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run(feed)


def test_the_message_names_the_node() -> None:
    model = model_of(
        [NODE("Split", ["x", "sizes"], ["p", "q"], name="cut")],
        {"x": "float32[n]", "sizes": "int64[2]"},
    )
    messages = build(model).imported.module["main"].attrs["checks"].values()
    assert any("Split" in str(m) and "cut" in str(m) and "[0, 2^40]" in str(m) for m in messages)


def test_samples_are_of_either_sign_where_they_may() -> None:
    nodes = [
        NODE("Range", ["zero", "k", "one"], ["range"]),
        NODE("Range", ["zero", "m", "one"], ["short"]),
        NODE("ConstantOfShape", ["m"], ["zeros"]),
        NODE("Pad", ["x", "pads"], ["padded"]),
    ]
    inputs = {"k": "int64[]", "m": "int64[]", "x": "float32[n]", "pads": "int64[2]"}
    nodes.insert(2, NODE("Reshape", ["m", "one_axis"], ["extents"]))
    nodes[3].input[0] = "extents"
    constants = {"zero": np.array(0), "one": np.array(1), "one_axis": np.array([1])}
    bounds = build(model_of(nodes, inputs, constants)).imported.index_bounds
    least = {name: max(limit.evaluate({"n": 7})[0] for limit in bounds[name]) for name in bounds}
    assert {name: least[name] for name in ("k", "m", "pads")} == {"k": -9, "m": 0, "pads": -3}
    assert all(limit.usual for limits in bounds.values() for limit in limits)


@pytest.mark.parametrize("operator", ["Split", "SplitToSequence"])
def test_parts_are_not_negative(operator: str) -> None:
    nodes = [NODE("Split", ["x", "sizes"], ["p", "q"])]
    if operator == "SplitToSequence":
        nodes = [
            NODE("SplitToSequence", ["x", "sizes"], ["parts"]),
            *(NODE("SequenceAt", ["parts", index], [f"{index}_"]) for index in ("p", "q")),
        ]
    outputs = [f"{name}{'' if operator == 'Split' else '_'}" for name in ("p", "q")]
    constants = {} if operator == "Split" else {"p": np.array(0), "q": np.array(1)}
    model = model_of(nodes, {"x": "float32[n,m]", "sizes": "int64[2]"}, constants, outputs=outputs)
    x, numbers = normal(5, 3), (-1, 0, 2, 3, 5, 6, INT64_MAX, 6 + INT64_MIN)
    feeds = [{"x": x, "sizes": np.array(pair)} for pair in product(numbers, repeat=2)]
    assert assert_as_strict(model, feeds) == len(feeds) - 4


@pytest.mark.parametrize(
    ("operator", "shape"), [("ConstantOfShape", None), ("Expand", "n,1"), ("Tile", "n,m")]
)
def test_extents_are_not_negative(operator: str, shape: str | None) -> None:
    data = {} if shape is None else {"x": f"float32[{shape}]"}
    model = model_of([NODE(operator, [*data, "shape"], ["y"])], {**data, "shape": "int64[2]"})
    feeds = [
        {"shape": np.array(wanted)} | ({} if shape is None else {"x": normal(rows, 1)})
        for rows in (0, 1, 3)
        for wanted in product((-1, 0, 1, 3, INT64_MIN), (-(1 << 31), 0, 1, 4))
    ]
    assert assert_as_strict(model, feeds)


def test_a_shape_of_either_sign() -> None:
    """Not allowed: two times -1, and -2."""
    model = model_of(
        [NODE("Reshape", ["x", "shape"], ["y"])], {"x": "float32[n,4]", "shape": "int64[2]"}
    )
    feeds = [
        {"x": normal(rows, 4), "shape": np.array(wanted)}
        for rows in (1, 3)
        for wanted in product((INT64_MIN, -2, -1, 0, 1, 3, 4, 12), repeat=2)
    ]
    assert assert_as_strict(model, feeds)


def test_a_slice_of_either_sign() -> None:
    names = ("starts", "ends", "axes", "steps")
    model = model_of(
        [NODE("Slice", ["x", *names], ["y"])],
        {"x": "float32[n,m]"} | dict.fromkeys(names, "int64[1]"),
    )
    numbers = (INT64_MIN, -9, -3, -1, 0, 2, 3, 8, INT64_MAX)
    feeds = [
        {"x": normal(2, 3), "axes": np.array([-1])}
        | dict(zip(("starts", "ends", "steps"), map(np.array, ([a], [o], [step])), strict=True))
        for a, o, step in product(numbers, numbers, (INT64_MIN, -2, -1, 0, 1, 2, INT64_MAX))
        # There ONNX Runtime takes the end for the first element.
        if not (step < 0 and o == INT64_MAX)
    ]
    assert assert_as_strict(model, feeds) == sum(not feed["steps"].any() for feed in feeds)


def test_bounds_without_steps() -> None:
    model = model_of(
        [NODE("Slice", ["x", "starts", "ends"], ["y"])],
        {"x": "float32[n]", "starts": "int64[1]", "ends": "int64[1]"},
    )
    numbers = (INT64_MIN, -9, -3, -1, 0, 2, 3, 8, INT64_MAX)
    feeds = [
        {"x": normal(extent), "starts": np.array([start]), "ends": np.array([end])}
        for extent, start, end in product((0, 1, 5), numbers, numbers)
    ]
    assert_like_onnxruntime(model, feeds)


@pytest.mark.parametrize("mode", ["constant", "edge", "wrap"])
def test_pads_that_crop(mode: str) -> None:
    """Elements that one end crops do not come back in the padding of the other end."""
    model = model_of(
        [NODE("Pad", ["x", "pads"], ["y"], mode=mode)], {"x": "float32[n,5]", "pads": "int64[4]"}
    )
    feeds = [
        {"x": normal(6, 5), "pads": np.array([0, first, 1, last])}
        for first, last in product((-4, -2, 0, 3), (-3, -1, 0, 4))
        if first + last > -5
    ]
    assert_like_onnxruntime(model, feeds)


def test_reflected_pads_that_crop() -> None:
    model = model_of(
        [NODE("Pad", ["x", "pads"], ["y"], mode="reflect")], {"x": "float32[n]", "pads": "int64[2]"}
    )
    pairs = ((-2, 3), (3, -2), (-1, -1), (0, 4), (-3, 1))
    assert_like_onnxruntime(model, [{"x": normal(6), "pads": np.array(pair)} for pair in pairs])


def test_nothing_is_cropped_beyond_the_axis() -> None:
    model = model_of([NODE("Pad", ["x", "pads"], ["y"])], {"x": "float32[n]", "pads": "int64[2]"})
    built = build(model)
    for pads in ([-7, 0], [-3, -4], [1 << 50, 0], [INT64_MIN, 0]):
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run({"x": normal(6), "pads": np.array(pads)})


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("TopK", {"x": "float32[n,4]", "k": "int64[1]"}, {}),
        ("Trilu", {"x": "float32[n,4]", "k": "int64[]"}, {"upper": 1}),
        ("Trilu", {"x": "float32[n,4]", "k": "int64[]"}, {"upper": 0}),
        ("CumSum", {"x": "float32[n,4]", "k": "int64[]"}, {}),
        ("HannWindow", {"k": "int64[]"}, {}),
        ("HammingWindow", {"k": "int32[]"}, {}),
    ],
)
def test_numbers_of_either_sign(
    operator: str, inputs: dict[str, str], attributes: dict[str, int]
) -> None:
    outputs = ["y", "z"] if operator == "TopK" else ["y"]
    model = model_of([NODE(operator, list(inputs), outputs, **attributes)], inputs)
    dtype, scalar = inputs["k"].split("[")[0], inputs["k"].endswith("[]")
    numbers = [-9, -4, -2, -1, 0, 1, 2, 4, 5] + ([] if dtype == "int32" else [INT64_MIN])
    feeds = [
        {"k": np.array(number if scalar else [number], dtype)}
        | ({"x": normal(2, 4)} if "x" in inputs else {})
        for number in numbers
    ]
    assert_as_strict(model, feeds)


@pytest.mark.parametrize("wanted", ["sizes", "scales"])
def test_what_a_resize_cannot_do_is_refused(wanted: str) -> None:
    names = ["x", "", "", "to"] if wanted == "sizes" else ["x", "", "to"]
    dtype = "int64" if wanted == "sizes" else "float32"
    model = model_of(
        [NODE("Resize", names, ["y"], mode="linear")],
        {"x": "float32[1,1,h]", "to": f"{dtype}[3]"},
    )
    numbers = (-3, 1, 2, 5, 10) if wanted == "sizes" else (-3, 0, 0.3, 1, 1.3, 2, np.nan, np.inf)
    feeds = [{"x": normal(1, 1, 5), "to": np.array([1, 1, n], dtype)} for n in numbers]
    assert assert_as_strict(model, feeds)


def test_frames_of_a_signal() -> None:
    """ONNX Runtime dies of a frame length of 0."""
    model = model_of(
        [NODE("STFT", ["x", "step", "", "length"], ["y"])],
        {"x": "float32[n,m,1]", "step": "int64[]", "length": "int64[]"},
    )
    built = build(model)
    for step, length in ((0, 5), (-1, 5), (2, 0), (2, -1), (2, 17)):
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run({"x": normal(2, 16, 1), "step": np.array(step), "length": np.array(length)})
