"""Ensembles of decision trees as one program that walks every tree for every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from tvm import tirx

from compiler.errors import ImportFailed
from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.ops import loops
from compiler.ir.values import Known, Value


class Test(IntEnum):
    """How a node compares a feature with its split, in ONNX's numbering."""

    LEQ = 0
    LT = 1
    GTE = 2
    GT = 3
    EQ = 4
    NEQ = 5
    MEMBER = 6


class Aggregate(IntEnum):
    """What becomes of the weights that trees give one target, in ONNX's numbering."""

    AVERAGE = 0
    SUM = 1
    MIN = 2
    MAX = 3


@dataclass(frozen=True)
class Forest:
    """Nodes by number with where they lead: a node's number, or that of a leaf plus the count of
    nodes.

    members: the sets of the MEMBER nodes one after the other, node i's from first[i] to first[i +
    1].
    """

    roots: Sequence[int]
    features: Sequence[int]
    tests: Sequence[Test]
    splits: np.ndarray[Any, Any]
    yes: Sequence[int]
    no: Sequence[int]
    missing: Sequence[bool]
    members: np.ndarray[Any, Any]
    first: Sequence[int]
    targets: Sequence[int]
    weights: np.ndarray[Any, Any]

    def depth(self) -> int:
        """How many nodes the longest way down passes; raises ImportFailed where a way leads in a
        circle or nowhere.
        """
        count, leaves = len(self.features), len(self.targets)
        level, deepest = {root for root in self.roots if root < count}, 0
        while level:
            deepest += 1
            if deepest > count:
                raise ImportFailed("the nodes of a tree lead in a circle", reason="attribute")
            below = {way[node] for node in level for way in (self.yes, self.no)}
            if not all(0 <= place < count + leaves for place in below):
                raise ImportFailed("a node of a tree leads nowhere", reason="attribute")
            level = {place for place in below if place < count}
        return deepest


def ensemble(b: Builder, x: Value, forest: Forest, targets: int, aggregate: Aggregate) -> Value:
    """x [n, features] to [n, targets], in x's dtype: the weights of the leaves that a row comes to,
    aggregated by target.
    """
    if max(forest.features) >= 0:
        b.require(
            ex.less(max(forest.features), x.shape[1]),
            "a tree asks for a feature that the rows do not have",
        )
    rows, dtype, count, depth = x.shape[0], x.dtype, len(forest.features), forest.depth()
    start = {
        Aggregate.MIN: float(np.finfo(dtype).max),
        Aggregate.MAX: float(np.finfo(dtype).min),
    }.get(aggregate, 0.0)
    whole = [
        forest.roots,
        forest.features,
        forest.tests,
        forest.yes,
        forest.no,
        forest.missing,
        forest.first,
        forest.targets,
    ]
    tables = [Known(np.asarray(items, np.int64), "int64") for items in whole]
    reals = [
        Known(np.asarray(items).astype(dtype), dtype)
        for items in (forest.splits, np.append(forest.members, 0), forest.weights)
    ]

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        data, roots, features, tests, yes, no, missing, first, places, splits, members, weights = (
            inputs
        )
        walk = _Walk(features, tests, missing, first, splits, members, Test.MEMBER in forest.tests)

        def row(i: Any) -> None:
            with loops.serial(targets) as target:
                outputs[0][i, target] = tirx.const(start, dtype)
            with loops.serial(len(forest.roots)) as tree:
                at = loops.cell("int64", roots[tree])
                with loops.serial(depth), loops.when(at[0] < ex.prim(count)):
                    at[0] = tirx.Select(walk.goes(data, i, at[0]), yes[at[0]], no[at[0]])
                leaf = at[0] - ex.prim(count)
                outputs[0][i, places[leaf]] = _merged(
                    outputs[0][i, places[leaf]], weights[leaf], aggregate, len(forest.roots)
                )

        loops.spread(rows, row, work=len(forest.roots) * depth * 8)

    return loops.program(b, body, [((rows, targets), dtype)], x, *tables, *reals, name="trees")[0]


@dataclass(frozen=True)
class _Walk:
    """The tables that decide which way a row goes at a node; `sets`: whether any node has a set."""

    features: Any
    tests: Any
    missing: Any
    first: Any
    splits: Any
    members: Any
    sets: bool

    def goes(self, data: Any, row: Any, node: Any) -> Any:
        """Whether the row goes the node's first way."""
        value, split, test = data[row, self.features[node]], self.splits[node], self.tests[node]
        ways = {
            Test.LEQ: value <= split, Test.LT: value < split, Test.GTE: value >= split,
            Test.GT: value > split, Test.EQ: tirx.EQ(value, split), Test.NEQ: tirx.NE(value, split),
        }  # fmt: skip
        hit = self._among(value, node) if self.sets else tirx.const(False, "bool")
        for kind, held in ways.items():
            hit = tirx.Select(tirx.EQ(test, ex.prim(kind.value)), held, hit)
        return tirx.Or(hit, tirx.And(tirx.isnan(value), tirx.NE(self.missing[node], ex.prim(0))))

    def _among(self, value: Any, node: Any) -> Any:
        found = loops.cell("bool", False)
        with loops.serial(self.first[node + ex.prim(1)], self.first[node]) as place:
            found[0] = tirx.Or(found[0], tirx.EQ(self.members[place], value))
        return found[0]


def _merged(old: Any, weight: Any, aggregate: Aggregate, trees: int) -> Any:
    match aggregate:
        case Aggregate.MIN:
            return tirx.min(old, weight)
        case Aggregate.MAX:
            return tirx.max(old, weight)
        case Aggregate.AVERAGE:
            return old + weight / tirx.const(trees, old.ty.dtype)
    return old + weight
