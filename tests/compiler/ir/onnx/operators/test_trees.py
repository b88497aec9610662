"""Ensembles of trees against onnx's own evaluator, NaN and rows of all counts included."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import assert_close, build

LEQ, GT, EQ, MEMBER = 0, 3, 4, 6


def forest(**changes: Any) -> onnx.ModelProto:
    """Two trees over two features; the second one tests for a set first."""
    attributes = {
        "n_targets": 2,
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 1, 0, 1],
        "nodes_modes": np.array([LEQ, GT, MEMBER, EQ], np.uint8),
        "nodes_splits": np.array([0.5, -1.0, 0.0, 2.0], np.float32),
        "nodes_truenodeids": [0, 1, 3, 4],
        "nodes_trueleafs": [1, 1, 1, 1],
        "nodes_falsenodeids": [1, 2, 3, 5],
        "nodes_falseleafs": [0, 1, 0, 1],
        "nodes_missing_value_tracks_true": [1, 0, 0, 1],
        "membership_values": np.array([1.0, 3.0, np.nan], np.float32),
        "leaf_targetids": [0, 1, 0, 1, 0, 0],
        "leaf_weights": np.array([1.0, -2.0, 4.0, 8.0, 16.0, -32.0], np.float32),
    } | changes
    packed = {
        name: numpy_helper.from_array(item) if isinstance(item, np.ndarray) else item
        for name, item in attributes.items()
    }
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **packed)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph([node], "trees", [x], [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("ai.onnx.ml", 5), helper.make_opsetid("", 19)],
        ir_version=9,
    )


@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_every_way_down(aggregate: int) -> None:
    model = forest(aggregate_function=aggregate)
    built = build(model)
    values = np.array([0.0, 0.5, 1.0, 3.0, 2.0, -1.0, np.nan], np.float32)
    every = np.array([[a, b] for a in values for b in values], np.float32)
    for rows in (every, every[:1], every[:0]):
        wanted = (
            ReferenceEvaluator(model).run(None, {"x": rows})[0] if len(rows) else np.zeros((0, 2))
        )
        assert_close(built.run({"x": rows}), [wanted.astype(np.float32)], ["y"], 1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_falsenodeids": [0, 2, 3, 5]}, "circle"),
        ({"nodes_falsenodeids": [1, 9, 3, 5]}, "nowhere"),
        ({"nodes_featureids": [0, 2, 0, 1]}, "feature"),
        ({"post_transform": 1}, "post_transform"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ImportFailed, match=message):
        build(forest(**changes))
