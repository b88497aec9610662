"""ONNX's ensembles of decision trees."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.onnx.classical import (
    DOMAIN,
    floats,
    integers,
    labels_of,
    post_transform,
    rows,
)
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.onnx.tree_tables import forest_of
from compiler.ir.ops.ml import scores as sc
from compiler.ir.ops.ml import trees
from compiler.ir.ops.ml.forest import Forest, Test
from compiler.ir.ops.ml.scores import PostTransform
from compiler.ir.ops.ml.trees import Aggregate
from compiler.ir.ops.ml.votes import Classes, classify
from compiler.ir.ops.pointwise import elementwise as ew


@op("TreeEnsemble", since=5, domain=DOMAIN)
def tree_ensemble(b: Builder, node: Node) -> Value:
    """x [n, features] to [n, n_targets]."""
    codes = list(PostTransform)
    post, aggregate = node.attr("post_transform", 0), node.attr("aggregate_function", 1)
    if post not in range(len(codes)) or aggregate not in list(Aggregate):
        node.fail(
            "post_transform or aggregate_function has a number that ONNX does not define",
            reason="attribute",
        )
    if codes[post] in (PostTransform.SOFTMAX, PostTransform.LOGISTIC):
        node.fail(
            "post_transform 1 and 2 are SOFTMAX and LOGISTIC in the specification, and the other "
            "way round in ONNX Runtime",
            reason="unsupported_form",
            hint="export raw scores and follow them with Softmax or Sigmoid",
        )
    x = rows(b, node)
    votes = trees.ensemble(b, x, _forest(node), node.attr("n_targets", 1), Aggregate(aggregate))
    return ew.cast(b, sc.transform(b, votes.values, codes[post]), node.value(0).dtype)


@op("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(b: Builder, node: Node) -> Value:
    """x [n, features] to float32 [n, n_targets]."""
    name = node.attr("aggregate_function", "SUM")
    if name not in Aggregate.__members__:
        node.fail(f"aggregate_function is {name!r}, which ONNX does not define", reason="attribute")
    targets, base = node.attr("n_targets", 1), floats(node, "base_values")
    if len(base) not in (0, targets):
        node.fail(f"base_values has {len(base)} elements for {targets} targets", reason="attribute")
    x = rows(b, node)
    added = Known.of(base, x.dtype) if len(base) else None
    votes = trees.ensemble(b, x, forest_of(node, "target"), targets, Aggregate[name], added)
    return sc.transform(b, ew.cast(b, votes.values, "float32"), post_transform(node))


@op("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(b: Builder, node: Node) -> list[Value | None]:
    """x [n, features] to labels [n] and float32 scores [n, classes]."""
    labels = labels_of(node, "classlabels_int64s", "classlabels_strings")
    if not labels:
        node.fail("the classifier names no classes", reason="attribute")
    forest = forest_of(node, "class")
    votes = trees.ensemble(b, rows(b, node), forest, len(labels), Aggregate.SUM)
    base = floats(node, "base_values")
    if len(base) > len(labels):
        node.fail(
            f"base_values has {len(base)} elements for {len(labels)} classes", reason="attribute"
        )
    classes = Classes(
        labels.numbers,
        base,
        post_transform(node),
        bool((floats(node, "class_weights") >= 0).all()),
        len(np.unique(integers(node, "class_ids"))) == 1,
    )
    label, values = classify(b, votes, classes)
    return [labels.output(node, label), values]


def _forest(node: Node) -> Forest:
    codes = numpy_helper.to_array(node.attr("nodes_modes"))
    count, leaves = len(codes), len(node.attr("leaf_targetids"))
    if codes.size and codes.max() > max(Test):
        node.fail("nodes_modes has a number that ONNX does not define", reason="attribute")
    splits = numpy_helper.to_array(node.attr("nodes_splits"))
    weights = numpy_helper.to_array(node.attr("leaf_weights"))
    missing = node.attr("nodes_missing_value_tracks_true", []) or [0] * count
    lengths = (len(integers(node, "nodes_featureids")), len(splits), len(missing))
    if lengths != (count,) * len(lengths) or len(weights) != leaves:
        node.fail("the lists of nodes or of leaves differ in length", reason="attribute")
    members, first = _sets(node, codes.tolist())
    return Forest(
        roots=integers(node, "tree_roots"),
        features=integers(node, "nodes_featureids"),
        tests=codes.astype(np.int64),
        splits=splits,
        yes=_ways(node, "true", count, leaves),
        no=_ways(node, "false", count, leaves),
        missing=np.asarray(missing, bool),
        members=members,
        first=np.asarray(first),
        starts=np.arange(leaves + 1),
        targets=integers(node, "leaf_targetids"),
        weights=weights,
    )


def _ways(node: Node, side: str, count: int, leaves: int) -> np.ndarray[Any, Any]:
    """Where each node's branch of that side leads: leaves are numbered on from the nodes."""
    targets = integers(node, f"nodes_{side}nodeids")
    leaf = integers(node, f"nodes_{side}leafs").astype(bool)
    if not len(targets) == len(leaf) == count:
        node.fail("the lists of nodes differ in length", reason="attribute")
    limits = np.where(leaf, leaves, count)
    if ((targets < 0) | (targets >= limits)).any():
        node.fail("a node of a tree leads nowhere", reason="attribute")
    return np.where(leaf, targets + count, targets)


def _sets(node: Node, codes: Sequence[int]) -> tuple[np.ndarray[Any, Any], list[int]]:
    """The members of all sets and where each node's begin; the attribute ends each MEMBER node's
    set with a NaN.
    """
    wanted = sum(code == Test.MEMBER for code in codes)
    if not wanted:
        return np.zeros(0), [0] * (len(codes) + 1)
    values = numpy_helper.to_array(node.attr("membership_values"))
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != wanted or ends[-1] != len(values) - 1:
        node.fail(
            f"membership_values has {len(ends)} sets, each ended by a NaN, for {wanted} nodes",
            reason="attribute",
        )
    lengths = iter(np.diff(ends, prepend=-1) - 1)
    sizes = [int(next(lengths)) if code == Test.MEMBER else 0 for code in codes]
    return values[~np.isnan(values)], [0, *np.cumsum(sizes).tolist()]
