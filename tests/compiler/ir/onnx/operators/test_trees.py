"""Ensembles of trees against ONNX Runtime, NaN and rows of all counts included."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import assert_like_onnxruntime, build

LEQ, GT, EQ, MEMBER = 0, 3, 4, 6
MODES = [f"BRANCH_{name}" for name in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")]
FEATURES = 5
SPECIAL = np.array([-1, 0, 1, 2, np.nan, np.inf, -np.inf])
ROWS = (0, 1, 2, 7, 17)


def model_of(
    op: str, attributes: dict[str, Any], outputs: list[str], version: int = 3, x: str = "FLOAT"
) -> onnx.ModelProto:
    """One node over x [n, features]."""
    packed = {
        name: numpy_helper.from_array(item) if isinstance(item, np.ndarray) else item
        for name, item in attributes.items()
        if not isinstance(item, list) or item
    }
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **packed)
    kind = getattr(onnx.TensorProto, x)
    features = 2 if version == 5 else FEATURES
    graph = helper.make_graph(
        [node],
        "trees",
        [helper.make_tensor_value_info("x", kind, ["n", features])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    opsets = [helper.make_opsetid("ai.onnx.ml", version), helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


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
    }
    return model_of("TreeEnsemble", attributes | changes, ["y"], 5)


@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_every_way_down(aggregate: int) -> None:
    values = np.array([0.0, 0.5, 1.0, 3.0, 2.0, -1.0, np.nan], np.float32)
    every = np.array([[a, b] for a in values for b in values], np.float32)
    feeds = [{"x": rows} for rows in (every, every[:1], every[:0])]
    assert_like_onnxruntime(forest(aggregate_function=aggregate), feeds, tolerance=1e-6)


def test_softmax_over_the_scores_that_are_not_zero() -> None:
    rows = np.array([[0, 0], [1, 3], [2, 2], [3, -1]], np.float32)
    assert_like_onnxruntime(forest(post_transform=3), [{"x": rows}])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_falsenodeids": [0, 2, 3, 5]}, "circle"),
        ({"nodes_falsenodeids": [1, 9, 3, 5]}, "nowhere"),
        ({"nodes_falsenodeids": [1, -1, 3, 5]}, "nowhere"),
        ({"tree_roots": [0, 10]}, "nowhere"),
        ({"nodes_featureids": [0, 2, 0, 1]}, "feature"),
        ({"nodes_featureids": [0, -1, 0, 1]}, "feature"),
        ({"leaf_targetids": [0, 1, 0, 2, 0, 0]}, "target"),
        ({"leaf_targetids": [0, 1, 0, 1, 0]}, "length"),
        ({"n_targets": 1 << 40}, "targets"),
        ({"nodes_trueleafs": [1]}, "length"),
        ({"nodes_modes": np.array([LEQ, GT, 7, EQ], np.uint8)}, "does not define"),
        ({"membership_values": np.array([1.0, 3.0], np.float32)}, "sets"),
        ({"post_transform": 1}, "post_transform"),
        ({"post_transform": 9}, "post_transform"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ImportFailed, match=message):
        build(forest(**changes))


class Grown:
    """Seeded random trees as lists, with nodes in an order in which children follow parents."""

    def __init__(self, seed: int, trees: int, modes: list[str], depth: int = 5) -> None:
        self.draw = np.random.default_rng(seed)
        self.modes, self.nodes = modes, list[dict[str, Any]]()
        self.leaves = list[tuple[int, int]]()
        for tree in range(trees):
            self._grow(tree, depth)

    def _grow(self, tree: int, depth: int) -> None:
        own = [self._node(tree, 0)]
        for _ in range(int(self.draw.integers(0, 2**depth))):
            leaves = [node for node in own if node["mode"] == "LEAF"]
            node = leaves[self.draw.integers(len(leaves))]
            below = [self._node(tree, len(own) + i) for i in range(2)]
            own += below
            node["mode"] = self.modes[self.draw.integers(len(self.modes))]
            node["yes"], node["no"] = below[0]["node"], below[1]["node"]
        self.leaves += [(tree, node["node"]) for node in own if node["mode"] == "LEAF"]

    def _node(self, tree: int, number: int) -> dict[str, Any]:
        value = float(np.float32(self.draw.choice([-1, 0, 0.1, 1, 2, self.draw.normal()])))
        feature, missing = int(self.draw.integers(FEATURES)), int(self.draw.integers(2))
        node = {"tree": tree, "node": number, "mode": "LEAF", "value": value, "yes": 0, "no": 0}
        self.nodes.append(node | {"feature": feature, "missing": missing})
        return self.nodes[-1]

    def attributes(self, kind: str, targets: list[list[int]], **changes: Any) -> dict[str, Any]:
        """Each leaf holds a weight for the targets of its tree, `targets` repeated."""
        weighted = [
            (tree, leaf, target)
            for tree, leaf in self.leaves
            for target in targets[tree % len(targets)]
        ]
        weights = self.draw.normal(size=len(weighted)).astype(np.float32)
        fields = {
            "treeids": "tree",
            "nodeids": "node",
            "modes": "mode",
            "values": "value",
            "truenodeids": "yes",
            "falsenodeids": "no",
            "featureids": "feature",
            "missing_value_tracks_true": "missing",
        }
        return {
            **{f"nodes_{name}": [node[key] for node in self.nodes] for name, key in fields.items()},
            f"{kind}_treeids": [tree for tree, _, _ in weighted],
            f"{kind}_nodeids": [leaf for _, leaf, _ in weighted],
            f"{kind}_ids": [target for _, _, target in weighted],
            f"{kind}_weights": [float(weight) for weight in weights],
            **changes,
        }


def rows_of(count: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    draw = np.random.default_rng(count)
    values = draw.normal(size=(count, FEATURES))
    if np.dtype(dtype).kind == "f":
        values = np.where(
            draw.random(values.shape) < 0.4, draw.choice(SPECIAL, values.shape), values
        )
    return {"x": (values * (1 if np.dtype(dtype).kind == "f" else 2)).astype(dtype)}


@pytest.mark.parametrize(
    ("aggregate", "targets"),
    [
        ("SUM", [[0, 1, 2]]),
        ("AVERAGE", [[0], [1, 2], [2]]),
        ("MIN", [[0]]),
        ("MAX", [[0, 1], [1, 2]]),
        # Targets that no leaf has a weight for.
        ("MIN", [[1]]),
        ("MAX", [[0, 2]]),
        ("MAX", [[0], [2]]),
    ],
)
def test_regressor(aggregate: str, targets: list[list[int]]) -> None:
    grown = Grown(len(targets[0]), 11, MODES)
    count = 1 + max(target for group in targets for target in group)
    attributes = grown.attributes(
        "target",
        targets,
        n_targets=count,
        aggregate_function=aggregate,
        base_values=[0.25, -1.5, 3.0][:count],
    )
    model = model_of("TreeEnsembleRegressor", attributes, ["y"])
    assert_like_onnxruntime(model, [rows_of(n) for n in ROWS], tolerance=1e-5)


@pytest.mark.parametrize("aggregate", ["MIN", "MAX"])
def test_rows_differ_in_the_targets_that_they_have(aggregate: str) -> None:
    attributes = Grown(3, 7, MODES).attributes(
        "target", [[0]], n_targets=3, aggregate_function=aggregate, base_values=[0.25, -1.5, 3.0]
    )
    attributes["target_ids"] = [i % 2 for i in range(len(attributes["target_ids"]))]
    model = model_of("TreeEnsembleRegressor", attributes, ["y"])
    assert_like_onnxruntime(model, [rows_of(n) for n in ROWS], tolerance=1e-5)


@pytest.mark.parametrize("mode", ["BRANCH_LT", "BRANCH_NEQ"])
def test_trees_of_one_test(mode: str) -> None:
    attributes = Grown(7, 9, [mode]).attributes("target", [[0]], n_targets=1)
    model = model_of("TreeEnsembleRegressor", attributes, ["y"])
    assert_like_onnxruntime(model, [rows_of(n) for n in ROWS], tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32"])
def test_dtypes_of_rows(dtype: str) -> None:
    kind = {"float64": "DOUBLE"}.get(dtype, dtype.upper())
    grown = Grown(3, 10, MODES[:4])
    attributes = grown.attributes("class", [[0, 1, 2]], classlabels_int64s=[4, -2, 9])
    model = model_of("TreeEnsembleClassifier", attributes, ["label", "y"], x=kind)
    assert_like_onnxruntime(model, [rows_of(n, dtype) for n in ROWS])


def test_thresholds_of_float64() -> None:
    """Splits that float32 would round across the rows' values."""
    attributes = Grown(5, 6, MODES).attributes("target", [[0]], n_targets=1)
    values, weights = attributes.pop("nodes_values"), attributes.pop("target_weights")
    near = np.asarray(values) + 1e-12
    attributes |= {"nodes_values_as_tensor": near, "target_weights_as_tensor": np.array(weights)}
    model = model_of("TreeEnsembleRegressor", attributes, ["y"], x="DOUBLE")
    x = np.random.default_rng(0).choice(np.concatenate([near, near + 1e-12]), (33, FEATURES))
    assert_like_onnxruntime(model, [{"x": x}, {"x": x[:1]}], tolerance=1e-6)


def test_more_trees_than_one_thread_should_walk() -> None:
    """For few rows the trees are shared out; 1,001 do not divide into groups."""
    attributes = Grown(9, 1001, MODES[:1], 4).attributes("target", [[0, 1]], n_targets=2)
    attributes["aggregate_function"] = "AVERAGE"
    model = model_of("TreeEnsembleRegressor", attributes, ["y"])
    assert_like_onnxruntime(model, [rows_of(n) for n in (0, 1, 2, 7, 8, 9, 33)], tolerance=1e-5)


@pytest.mark.parametrize(
    ("post", "targets", "base"),
    [
        ("NONE", [[0, 1, 2]], []),
        ("SOFTMAX", [[0], [1], [2]], [0.5, -1.0, 0.25]),
        ("LOGISTIC", [[0], [2]], []),
        ("SOFTMAX_ZERO", [[0], [2]], [0.5, -1.0, 0.25]),
    ],
)
def test_classifier_of_three(post: str, targets: list[list[int]], base: list[float]) -> None:
    grown = Grown(len(targets), 12, MODES[:2])
    labels = [7, 3, 5]
    changes = {"classlabels_int64s": labels, "post_transform": post, "base_values": base}
    attributes = grown.attributes("class", targets, **changes)
    model = model_of("TreeEnsembleClassifier", attributes, ["label", "y"])
    assert_like_onnxruntime(model, [rows_of(n) for n in ROWS])


@pytest.mark.parametrize(
    ("post", "targets", "positive", "base"),
    [
        ("NONE", [[0]], True, []),
        ("NONE", [[0]], False, [0.125]),
        ("NONE", [[1]], False, [0.125]),
        ("NONE", [[0, 1]], True, []),
        ("SOFTMAX", [[0]], False, [0.5, -0.25]),
        ("SOFTMAX", [[1]], True, [0.5, -0.25]),
        ("SOFTMAX", [[0, 1]], False, [0.5, -0.25]),
        ("LOGISTIC", [[0]], True, [0.125]),
        ("LOGISTIC", [[0]], False, []),
        ("LOGISTIC", [[1]], True, []),
    ],
)
def test_classifier_of_two(
    post: str, targets: list[list[int]], positive: bool, base: list[float]
) -> None:
    grown = Grown(4, 9, MODES[:1])
    changes = {"classlabels_int64s": [7, 3], "post_transform": post, "base_values": base}
    attributes = grown.attributes("class", targets, **changes)
    if positive:
        attributes["class_weights"] = np.abs(attributes["class_weights"]).tolist()
    model = model_of("TreeEnsembleClassifier", attributes, ["label", "y"])
    assert_like_onnxruntime(model, [rows_of(n) for n in (0, 1, 17)])


def test_two_classes_of_which_some_rows_have_one() -> None:
    """Leaves hold a weight for either class, as few exporters write them."""
    attributes = Grown(4, 2, MODES[:1]).attributes("class", [[0]], classlabels_int64s=[0, 1])
    attributes["class_ids"] = [i % 2 for i in range(len(attributes["class_ids"]))]
    model = model_of("TreeEnsembleClassifier", attributes, ["label", "y"])
    assert_like_onnxruntime(model, [rows_of(n) for n in (1, 17, 40)])


def test_classifier_of_one() -> None:
    attributes = Grown(4, 3, MODES[:1]).attributes("class", [[0]], classlabels_int64s=[5])
    model = model_of("TreeEnsembleClassifier", attributes, ["label", "y"])
    assert_like_onnxruntime(model, [rows_of(n) for n in (1, 17)])


def test_labels_that_are_strings() -> None:
    """The scores compile alone; the labels are refused with what to do."""
    attributes = Grown(4, 3, MODES[:1]).attributes(
        "class", [[0, 1, 2]], classlabels_strings=["a", "b", "c"]
    )
    model = model_of("TreeEnsembleClassifier", attributes, ["label", "y"])
    with pytest.raises(ImportFailed, match="strings") as caught:
        build(model)
    assert "select_model_inputs_outputs" in str(caught.value.failure.hint)
    del model.graph.output[0]
    assert_like_onnxruntime(model, [rows_of(n) for n in (1, 17)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a["nodes_truenodeids"].__setitem__(0, 0), "circle"),
        (lambda a: a["nodes_truenodeids"].__setitem__(0, 99999), "not in its tree"),
        (lambda a: a["nodes_falsenodeids"].__setitem__(0, -1), "not in its tree"),
        (lambda a: a["nodes_nodeids"].__setitem__(1, 0), "two nodes"),
        (lambda a: a["nodes_nodeids"].__setitem__(1, 1 << 40), "out of range"),
        (lambda a: a["nodes_featureids"].__setitem__(0, FEATURES), "feature"),
        (lambda a: a["nodes_modes"].__setitem__(0, "BRANCH_MEMBER"), "does not define"),
        (lambda a: a["nodes_values"].pop(), "length"),
        (lambda a: a["target_nodeids"].__setitem__(0, 99999), "not in its tree"),
        (lambda a: a["target_treeids"].__setitem__(0, 99999), "not in its tree"),
        (lambda a: a["target_ids"].__setitem__(0, 1), "target"),
        (lambda a: a["target_ids"].pop(), "length"),
        (lambda a: a.update(aggregate_function="MEDIAN"), "aggregate_function"),
        (lambda a: a.update(post_transform="TANH"), "post_transform"),
        (lambda a: a.update(base_values=[1.0, 2.0]), "base_values"),
    ],
)
def test_malformed_lists(change: Any, message: str) -> None:
    attributes = Grown(1, 1, MODES[:1]).attributes("target", [[0]], n_targets=1)
    change(attributes)
    with pytest.raises(ImportFailed, match=message):
        build(model_of("TreeEnsembleRegressor", attributes, ["y"]))


def test_nodes_that_share_a_child() -> None:
    """LightGBM's exporter tests for a set by nodes with one child in common."""
    attributes = {
        "nodes_treeids": [0] * 4,
        "nodes_nodeids": [0, 1, 2, 3],
        "nodes_modes": ["BRANCH_EQ", "BRANCH_EQ", "LEAF", "LEAF"],
        "nodes_values": [1.0, 2.0, 0.0, 0.0],
        "nodes_featureids": [0] * 4,
        "nodes_truenodeids": [3, 3, 0, 0],
        "nodes_falsenodeids": [1, 2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [2, 3],
        "target_ids": [0, 0],
        "target_weights": [0.5, 4.0],
        "n_targets": 1,
    }
    built = build(model_of("TreeEnsembleRegressor", attributes, ["y"]))
    x = np.array([[0], [1], [2], [3]], np.float32) * np.ones(FEATURES, np.float32)
    np.testing.assert_array_equal(built.run({"x": x})[0], [[0.5], [4], [4], [0.5]])
