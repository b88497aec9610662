"""ONNX's ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from compiler.ir.builder import Builder
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops import trees
from compiler.ir.ops.trees import Aggregate, Forest, Test
from compiler.ir.values import Value


@op("TreeEnsemble", since=5, domain="ai.onnx.ml")
def tree_ensemble(b: Builder, node: Node) -> Value:
    """x [n, features] to [n, n_targets]; the raw scores only."""
    if node.attr("post_transform", 0) != 0:
        node.fail(
            "post_transform is not supported",
            reason="unsupported_form",
            hint="export raw scores and transform them in the graph",
        )
    return trees.ensemble(
        b,
        node.value(0),
        _forest(node),
        node.attr("n_targets"),
        Aggregate(node.attr("aggregate_function", 1)),
    )


def _forest(node: Node) -> Forest:
    tests = [Test(code) for code in numpy_helper.to_array(node.attr("nodes_modes")).tolist()]
    members, first = _sets(node, tests)
    return Forest(
        roots=node.attr("tree_roots"),
        features=node.attr("nodes_featureids"),
        tests=tests,
        splits=numpy_helper.to_array(node.attr("nodes_splits")),
        yes=_ways(node, "true", len(tests)),
        no=_ways(node, "false", len(tests)),
        missing=[bool(flag) for flag in node.attr("nodes_missing_value_tracks_true", [])]
        or [False] * len(tests),
        members=members,
        first=first,
        targets=node.attr("leaf_targetids"),
        weights=numpy_helper.to_array(node.attr("leaf_weights")),
    )


def _ways(node: Node, side: str, count: int) -> list[int]:
    """Where each node's branch of that side leads: leaves are numbered on from the nodes."""
    places, leaves = node.attr(f"nodes_{side}nodeids"), node.attr(f"nodes_{side}leafs")
    return [place + count if leaf else place for place, leaf in zip(places, leaves, strict=True)]


def _sets(node: Node, tests: Sequence[Test]) -> tuple[np.ndarray[Any, Any], list[int]]:
    """The members of all sets and where each node's begin; the attribute ends each MEMBER node's
    set with a NaN.
    """
    if "membership_values" not in node.attributes:
        return np.zeros(0), [0] * (len(tests) + 1)
    values = numpy_helper.to_array(node.attr("membership_values"))
    sets = iter(np.split(values, np.flatnonzero(np.isnan(values)) + 1))
    sizes = [len(next(sets)) - 1 if test is Test.MEMBER else 0 for test in tests]
    return values[~np.isnan(values)], [0, *np.cumsum(sizes).tolist()]
