"""Gathers, scatters and their kin at several shapes, against ONNX Runtime and numpy."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import (
    Built,
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)

NODE = helper.make_node


def indices(shape: tuple[int, ...], extent: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-extent, extent, shape)


def test_gather_elements() -> None:
    model = model_of(
        [NODE("GatherElements", ["x", "i"], ["y"], axis=1)],
        {"x": "float32[n,c]", "i": "int64[n,k]"},
    )
    feeds = [
        {"x": normal(n, c), "i": indices((n, k), c)}
        for n, c, k in ((1, 1, 1), (3, 5, 7), (0, 2, 3), (2, 3, 0))
    ]
    assert_like_onnxruntime(model, feeds)


def test_an_index_out_of_range_is_an_error() -> None:
    built = build(
        model_of(
            [NODE("GatherElements", ["x", "i"], ["y"], axis=0)],
            {"x": "float32[n]", "i": "int64[k]"},
        )
    )
    for bad in (3, -4):
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run({"x": normal(3), "i": np.array([0, bad])})


def assert_refused(built: Built, feed: dict[str, np.ndarray], *wrong: dict[str, Any]) -> None:
    """The feed runs; with any of these inputs in place of its own a check fails."""
    built.run(feed)
    for changes in wrong:
        arrays = {name: np.array(items, feed[name].dtype) for name, items in changes.items()}
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run({**feed, **arrays})


EXTREMES = [-(2**63), -(2**31) - 1, -1, 5, 2**31, 2**40, 2**62, 2**63 - 1]
"""Lengths that no axis of four has."""


@pytest.mark.parametrize("op", ["ReverseSequence", "RNN", "GRU", "LSTM"])
def test_lengths_beyond_the_axis_are_an_error(op: str) -> None:
    inputs = {"x": "float32[t,b,3]", "lens": "int64[b]"}
    feed = {"x": normal(4, 2, 3), "lens": np.array([4, 2])}
    if op == "ReverseSequence":
        nodes = [NODE(op, ["x", "lens"], ["y"])]
        assert_refused(build(model_of(nodes, inputs)), feed, *({"lens": [v, 2]} for v in EXTREMES))
        return
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    nodes = [
        NODE("Cast", ["lens"], ["short"], to=6),
        NODE(op, ["x", "w", "r", "", "short"], ["", "y"], hidden_size=5),
    ]
    constants = {"w": normal(1, gates * 5, 3), "r": normal(1, gates * 5, 5)}
    built = build(model_of(nodes, inputs, constants, outputs=["y"]))
    assert_refused(built, feed, {"lens": [5, 2]}, {"lens": [2, -1]}, {"lens": [2**31 - 1, 1]})


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_starts_that_leave_a_cache_are_an_error(mode: str) -> None:
    node = NODE("TensorScatter", ["cache", "new", "start"], ["y"], mode=mode)
    inputs = {"cache": "float32[b,t,2]", "new": "float32[b,s,2]", "start": "int64[b]"}
    feed = {"cache": normal(2, 4, 2), "new": normal(2, 3, 2), "start": np.array([1, 0])}
    wrong = [-1, -(2**63), 2**62, *([2, 4] if mode == "linear" else [])]
    built = build(model_of([node], inputs, opset=24))
    assert_refused(built, feed, *({"start": [0, v]} for v in wrong))


def test_positions_in_a_sequence_are_checked() -> None:
    nodes = [
        NODE("SequenceConstruct", ["a", "b"], ["s"]),
        NODE("SequenceAt", ["s", "i"], ["y"]),
    ]
    inputs = {"a": "float32[n]", "b": "float32[n]", "i": "int64[]"}
    feed = {"a": normal(3), "b": normal(3), "i": np.array(-2)}
    wrong = [{"i": value} for value in (2, -3, 2**62)]
    assert_refused(build(model_of(nodes, inputs, outputs=["y"])), feed, *wrong)


def test_words_of_an_embedding_are_checked() -> None:
    node = helper.make_node(
        "EmbedLayerNormalization",
        ["ids", "", "words", "places", "", "gamma", "beta"],
        ["y", "mask"],
        domain="com.microsoft",
    )
    constants = {name: normal(7, 4) for name in ("words", "places")}
    constants |= {name: normal(4) for name in ("gamma", "beta")}
    model = model_of([node], {"ids": "int32[b,s]"}, constants, outputs=["y"])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    feed = {"ids": np.array([[0, 6, -7]], np.int32)}
    assert_refused(build(model), feed, *({"ids": [[v, 0, 1]]} for v in (7, -8, 2**31 - 1)))


@pytest.mark.parametrize("batch", [0, 1])
def test_gather_nd(batch: int) -> None:
    model = model_of(
        [NODE("GatherND", ["x", "i"], ["y"], batch_dims=batch)],
        {"x": "float32[n,c,w]", "i": "int64[n,k,2]"},
    )
    feeds = [
        {"x": normal(n, c, w), "i": indices((n, k, 2), min(n, c, w))}
        for n, c, w, k in ((2, 3, 2, 5), (1, 1, 7, 2), (4, 4, 4, 1))
    ]
    assert_like_onnxruntime(model, feeds)


def test_coordinates_counted_by_the_declared_rank() -> None:
    model = model_of(
        [NODE("GatherND", ["x", "i"], ["y"])], {"x": "float32[n,c]", "i": "int64[k,d]"}
    )
    with pytest.raises(ImportFailed, match="rank of the result is open"):
        build(model)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["k"]))
    x, i = normal(3, 4), indices((5, 2), 3)
    assert_close(build(model).run({"x": x, "i": i}), [x[i[:, 0], i[:, 1]]], ["y"], 0)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_elements(reduction: str, axis: int) -> None:
    node = NODE("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=reduction)
    model = model_of([node], {"x": "float32[n,c]", "i": "int64[a,b]", "u": "float32[a,b]"})
    feeds = []
    for n, c, a, b in ((3, 5, 2, 4), (1, 7, 1, 7), (5, 3, 5, 0)):
        extent = (n, c)[axis]
        i = (
            np.argsort(normal(a, b), axis) % extent
            if reduction == "none"
            else indices((a, b), extent)
        )
        feeds.append({"x": normal(n, c), "i": i, "u": normal(a, b, seed=1)})
    assert_like_onnxruntime(model, feeds)


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_scatter_nd(reduction: str) -> None:
    node = NODE("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)
    model = model_of([node], {"x": "float32[n,c]", "i": "int64[k,1]", "u": "float32[k,c]"})
    feeds = []
    for n, c, k in ((7, 3, 5), (1, 1, 1), (4, 2, 0)):
        i = (
            np.random.default_rng(1).permutation(n)[:k, None]
            if reduction == "none"
            else indices((k, 1), n)
        )
        feeds.append({"x": normal(n, c), "i": i, "u": normal(k, c, seed=2)})
    assert_like_onnxruntime(model, feeds)


def rows_model(reduction: str, wide: str = "c") -> onnx.ModelProto:
    """Rows of `wide` elements written at an index for each, which Expand repeats along it."""
    nodes = [
        NODE("Shape", ["u"], ["s"]),
        NODE("Expand", ["i", "s"], ["repeated"]),
        NODE("ScatterElements", ["x", "repeated", "u"], ["y"], axis=1, reduction=reduction),
    ]
    inputs = {"x": f"float32[a,n,{wide},2]", "i": "int64[a,k,1,1]", "u": "float32[a,k,c,2]"}
    return model_of(nodes, inputs, outputs=["y"])


def programs_of(built: Built) -> set[str]:
    return {gvar.name_hint for gvar in built.imported.module.functions}


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_rows_are_written_at_one_index_each(reduction: str) -> None:
    feeds = []
    for a, n, k, c in ((1, 7, 7, 1), (3, 5, 2, 15), (2, 40, 33, 16), (1, 9, 9, 17), (2, 3, 0, 50)):
        i = indices((a, k, 1, 1), n)
        if reduction == "none":
            i = np.random.default_rng(1).permuted(np.tile(np.arange(n), (a, 1)), axis=1)
            i = i[:, :k, None, None]
        feeds.append({"x": normal(a, n, c, 2), "i": i, "u": normal(a, k, c, 2, seed=1)})
    built = assert_like_onnxruntime(rows_model(reduction), feeds)
    assert "scatter_rows" in programs_of(built)


def test_many_rows_of_known_length_are_added_up_in_order() -> None:
    """By several threads, and in whole blocks of columns."""
    nodes = [
        NODE("Shape", ["u"], ["s"]),
        NODE("Expand", ["i", "s"], ["repeated"]),
        NODE("ScatterElements", ["x", "repeated", "u"], ["y"], axis=0, reduction="add"),
    ]
    for width in (32, 96, 100):
        inputs = {"x": f"float32[n,{width}]", "i": "int64[k,1]", "u": f"float32[k,{width}]"}
        built = build(model_of(nodes, inputs, outputs=["y"]))
        assert "scatter_rows" in programs_of(built)
        x, i, u = normal(50, width), indices((5000, 1), 50), normal(5000, width, seed=1)
        wanted = x.copy()
        np.add.at(wanted, i[:, 0], u)
        np.testing.assert_array_equal(built.run({"x": x, "i": i, "u": u})[0], wanted)


def test_rows_that_are_parts_of_longer_ones_are_written_by_element() -> None:
    feed = {"x": normal(2, 5, 4, 2), "i": indices((2, 3, 1, 1), 5), "u": normal(2, 3, 3, 2)}
    built = assert_like_onnxruntime(rows_model("add", wide="d"), [feed])
    assert "scatter_rows" not in programs_of(built)


def test_an_index_of_a_row_out_of_range_is_an_error() -> None:
    built = build(rows_model("add"))
    feed = {"x": normal(1, 3, 4, 2), "u": normal(1, 2, 4, 2)}
    for bad in (3, -4):
        with pytest.raises(RuntimeError, match="match_cast"):
            built.run({**feed, "i": np.array([0, bad]).reshape(1, 2, 1, 1)})


def test_messages_are_added_up_along_edges() -> None:
    node = NODE("ScatterElements", ["zeros", "target", "message"], ["y"], axis=0, reduction="add")
    model = model_of(
        [node],
        {"zeros": "float32[nodes,f]", "target": "int64[edges,f]", "message": "float32[edges,f]"},
    )
    target = np.random.default_rng(0).integers(0, 50, (20000, 1)).repeat(4, 1)
    message = np.ones((20000, 4), np.float32)
    wanted = np.zeros((50, 4), np.float32)
    np.add.at(wanted, target[:, 0], message)
    assert_close(
        build(model).run(
            {"zeros": np.zeros((50, 4), np.float32), "target": target, "message": message}
        ),
        [wanted],
        ["y"],
        0,
    )


def test_tile_one_hot_triangles_and_eye() -> None:
    nodes = [
        NODE("Tile", ["x", "repeats"], ["tiled"]),
        NODE("OneHot", ["ids", "depth", "values"], ["hot"], axis=0),
        NODE("Trilu", ["x", "k"], ["upper"]),
        NODE("Trilu", ["x", "k"], ["lower"], upper=0),
        NODE("EyeLike", ["x"], ["eye"], k=1, dtype=7),
    ]
    inputs = {
        "x": "float32[n,m]",
        "repeats": "int64[2]",
        "ids": "int64[q]",
        "depth": "int64[]",
        "k": "int64[]",
    }
    model = model_of(nodes, inputs, {"values": np.array([-1, 2], np.float32)})
    feeds = [
        {
            "x": normal(n, m),
            "repeats": np.array(r),
            "ids": indices((q,), 4),
            "depth": np.array(d),
            "k": np.array(k),
        }
        for n, m, r, q, d, k in (
            (3, 5, [2, 3], 4, 5, 1),
            (1, 1, [1, 1], 1, 1, -1),
            (7, 2, [0, 2], 3, 3, 0),
        )
    ]
    assert_like_onnxruntime(model, feeds)


def test_reverse_sequence() -> None:
    model = model_of(
        [NODE("ReverseSequence", ["x", "len"], ["y"], batch_axis=0, time_axis=1)],
        {"x": "float32[n,t,2]", "len": "int64[n]"},
    )
    assert_like_onnxruntime(
        model,
        [
            {"x": normal(3, 5, 2), "len": np.array([5, 1, 3])},
            {"x": normal(1, 1, 2), "len": np.array([1])},
        ],
    )


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter(mode: str) -> None:
    node = NODE("TensorScatter", ["past", "new", "at"], ["y"], mode=mode, axis=1)
    built = build(
        model_of(
            [node], {"past": "float32[n,t,d]", "new": "float32[n,s,d]", "at": "int64[n]"}, opset=24
        )
    )
    past, new, starts = (
        normal(2, 5, 3),
        normal(2, 2, 3, seed=1),
        np.array([3, 4 if mode == "circular" else 0]),
    )
    wanted = past.copy()
    for entry in range(2):
        wanted[entry, (starts[entry] + np.arange(2)) % 5] = new[entry]
    assert_close(built.run({"past": past, "new": new, "at": starts}), [wanted], ["y"], 0)


def test_known_indices_out_of_range_are_refused() -> None:
    model = model_of(
        [NODE("GatherElements", ["x", "i"], ["y"])], {"x": "float32[4]"}, {"i": np.array([4])}
    )
    with pytest.raises(ImportFailed, match="out of range"):
        build(model)


@pytest.mark.parametrize("index", [3, -4])
def test_a_gather_out_of_range_is_an_error(index: int) -> None:
    built = build(
        model_of([NODE("Gather", ["x", "i"], ["y"])], {"x": "float32[n,c]", "i": "int64[k]"})
    )
    x = normal(3, 2)
    assert_close(built.run({"x": x, "i": np.array([2, -3])}), [x[[2, -3]]], ["y"], 0)
    with pytest.raises(RuntimeError, match="match_cast"):
        built.run({"x": x, "i": np.array([0, index])})


def test_features_are_taken_at_all_indices_of_any_shape() -> None:
    """A classifier of scikit-learn looks its labels up so: by ArgMax, which keeps a last axis of
    one index.
    """
    constants = {"classes": np.array([7, 3, 5], "int32"), "rows": normal(2, 4)}
    nodes = [
        NODE("ArgMax", ["x"], ["best"], axis=1),
        NODE("ArrayFeatureExtractor", ["classes", "best"], ["label"], domain="ai.onnx.ml"),
        NODE("ArrayFeatureExtractor", ["rows", "best"], ["columns"], domain="ai.onnx.ml"),
    ]
    model = model_of(nodes, {"x": "float32[n,3]"}, constants, outputs=["label", "columns"])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    assert_like_onnxruntime(model, [{"x": normal(n, 3)} for n in (1, 2, 17)])
