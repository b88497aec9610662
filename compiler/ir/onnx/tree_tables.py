"""Trees as TreeEnsembleClassifier and TreeEnsembleRegressor list them: nodes, leaves among them, by
number of tree and node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from compiler.ir.onnx.classical import floats, integers
from compiler.ir.onnx.node import Node
from compiler.ir.ops.ml.forest import Forest, Test

Array: TypeAlias = np.ndarray[Any, Any]

LEAF = "LEAF"
MODES = {
    "BRANCH_LEQ": Test.LEQ,
    "BRANCH_LT": Test.LT,
    "BRANCH_GTE": Test.GTE,
    "BRANCH_GT": Test.GT,
    "BRANCH_EQ": Test.EQ,
    "BRANCH_NEQ": Test.NEQ,
}
LIMIT = 1 << 31


@dataclass(frozen=True)
class _Index:
    """The positions of nodes in the lists. trees: their numbers in order; keys: sorted, of tree and
    node together; positions: where each key stands.
    """

    node: Node
    trees: Array
    keys: Array
    positions: Array

    @classmethod
    def of(cls, node: Node, trees: Array, nodes: Array) -> _Index:
        """Fails if a tree has two nodes of one number."""
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= LIMIT):
            node.fail("nodes_nodeids has a number out of range", reason="attribute")
        numbers = np.unique(trees)
        keys = np.searchsorted(numbers, trees) * LIMIT + nodes
        order = np.argsort(keys, kind="stable")
        if (np.diff(keys[order]) == 0).any():
            node.fail("a tree has two nodes of one number", reason="attribute")
        return cls(node, numbers, keys[order], order)

    def find(self, trees: Array, nodes: Array, what: str) -> Array:
        """Where these nodes of these trees stand in the lists."""
        number = np.minimum(np.searchsorted(self.trees, trees), len(self.trees) - 1)
        inside = (nodes >= 0) & (nodes < LIMIT) & (self.trees[number] == trees)
        keys = np.where(inside, number * LIMIT + nodes, -1)
        index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        if (self.keys[index] != keys).any():
            self.node.fail(f"{what} that is not in its tree", reason="attribute")
        return self.positions[index]


def forest_of(node: Node, kind: str) -> Forest:
    """The trees of a node whose weights are the attributes `class_...` or `target_...`."""
    trees, modes = integers(node, "nodes_treeids"), node.attr("nodes_modes", [])
    unknown = sorted(set(modes) - {LEAF, *MODES})
    if unknown:
        node.fail(f"nodes_modes has {unknown[0]!r}, which ONNX does not define", reason="attribute")
    names = ("nodeids", "featureids", "truenodeids", "falsenodeids")
    lists = {name: integers(node, f"nodes_{name}") for name in names}
    splits = floats(node, "nodes_values")
    lengths = {len(modes), len(splits), *(len(items) for items in lists.values())}
    if lengths != {len(trees)} or not len(trees):
        node.fail("the lists of nodes are empty or differ in length", reason="attribute")
    index = _Index.of(node, trees, lists["nodeids"])
    leaf = np.asarray([mode == LEAF for mode in modes])
    inner, leaves = np.flatnonzero(~leaf), np.flatnonzero(leaf)
    renumbered = np.empty(len(trees), np.int64)
    renumbered[inner] = np.arange(len(inner))
    renumbered[leaves] = np.arange(len(inner), len(trees))

    def way(name: str) -> Array:
        what = "a node of a tree leads to a node"
        return renumbered[index.find(trees[inner], lists[name][inner], what)]

    starts, targets, weights = _weights(node, kind, index, leaves, renumbered)
    return Forest(
        roots=renumbered[np.sort(np.unique(trees, return_index=True)[1])],
        features=lists["featureids"][inner],
        tests=np.asarray([MODES[modes[i]].value for i in inner], np.int64),
        splits=splits[inner],
        yes=way("truenodeids"),
        no=way("falsenodeids"),
        missing=_missing(node, len(trees))[inner],
        members=np.zeros(0),
        first=np.zeros(len(inner) + 1, np.int64),
        starts=starts,
        targets=targets,
        weights=weights,
        owners=np.searchsorted(index.trees, trees[leaves]),
    )


def _missing(node: Node, count: int) -> Array:
    """Which nodes a NaN passes; the list may be shorter than those of the nodes."""
    flags = integers(node, "nodes_missing_value_tracks_true")[:count]
    return np.concatenate([flags != 0, np.zeros(count - len(flags), bool)])


def _weights(
    node: Node, kind: str, index: _Index, leaves: Array, renumbered: Array
) -> tuple[Array, Array, Array]:
    """Where each leaf's weights begin, and the targets and weights of all. Weights of nodes that
    are no leaves, which old exporters wrote, count for nothing.
    """
    targets, weights = integers(node, f"{kind}_ids"), floats(node, f"{kind}_weights")
    trees, nodes = integers(node, f"{kind}_treeids"), integers(node, f"{kind}_nodeids")
    if not len(targets) == len(weights) == len(trees) == len(nodes):
        node.fail("the lists of weights differ in length", reason="attribute")
    owner = renumbered[index.find(trees, nodes, "a weight belongs to a node")]
    owner -= len(renumbered) - len(leaves)
    counted = np.flatnonzero(owner >= 0)
    order = counted[np.argsort(owner[counted], kind="stable")]
    counts = np.bincount(owner[counted], minlength=len(leaves))
    return np.concatenate([[0], np.cumsum(counts)]), targets[order], weights[order]
