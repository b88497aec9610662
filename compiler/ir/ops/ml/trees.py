"""Ensembles of decision trees as one program that walks several trees of a row at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, reduce
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.ml.forest import Forest, Presence, Test
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.tir.script import PARALLEL_WORK

LANES = 8
"""Trees walked at a time: a step of one waits for memory while those of the others compute."""
BLOCK = 8
"""Rows that pass a group of trees before the next group's nodes push it out of the cache."""
CHUNKS = 16
"""Into how many parts the trees are shared among threads at most, when rows are few."""
STEP = 8
"""Operations of one step down a tree."""


class Aggregate(IntEnum):
    """The aggregation of the weights that trees give one target, in ONNX's numbering."""

    AVERAGE = 0
    SUM = 1
    MIN = 2
    MAX = 3


@dataclass(frozen=True)
class Scores:
    """values [n, targets]: the weights of the leaves that a row comes to, aggregated by target, 0
    for a target without any; presence: by target whether it has one; present: int32 [n, targets],
    None where `presence` says it all.
    """

    values: Value
    presence: Sequence[Presence]
    present: Value | None


def ensemble(
    b: Builder,
    x: Value,
    forest: Forest,
    targets: int,
    aggregate: Aggregate,
    base: Value | None = None,
) -> Scores:
    """Scores of x [n, features], in x's dtype, which splits and weights are converted to.

    base: [targets], added to them, but not to a least or greatest of nothing.
    """
    depth = forest.check(targets)
    if forest.count:
        b.require(
            ex.less(int(forest.features.max()), x.shape[1]),
            "a tree asks for a feature that the rows do not have",
        )
    presence = forest.presence(targets)
    plan = _Plan(forest, targets, aggregate, x.dtype, depth, Presence.SOMETIMES in presence)
    rows = x.shape[0]
    forms = [((rows, targets), x.dtype)]
    forms += [((rows, targets), "int32")] if plan.flagged else []
    forms += [((BLOCK, len(forest.roots)), "int32")] if len(plan.chunks) > 1 else []

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        _Walk(plan, rows, inputs[0], dict(zip(plan.tables, inputs[1:], strict=True)), outputs).run()

    results = loop_programs.program(b, body, forms, x, *plan.tables.values(), name="trees")
    values = _settled(b, results, plan, presence, base)
    return Scores(values, presence, results[1] if plan.flagged else None)


def _settled(
    b: Builder,
    results: Sequence[Tensor],
    plan: _Plan,
    presence: Sequence[Presence],
    base: Value | None,
) -> Value:
    """Averages divided, the base added, and 0 where a least or greatest is of nothing."""
    values: Value = results[0]
    if plan.aggregate is Aggregate.AVERAGE:
        trees = Known.of(np.asarray(float(len(plan.forest.roots))), values.dtype)
        values = ew.divide(b, values, trees)
    if base is not None:
        values = ew.add(b, values, base)
    match plan.aggregate:
        case Aggregate.MIN | Aggregate.MAX if plan.flagged:
            weighted = ew.cast(b, results[1], "bool")
        case Aggregate.MIN | Aggregate.MAX if Presence.NEVER in presence:
            weighted = Known.of(np.array([one is not Presence.NEVER for one in presence]), "bool")
        case _:
            return values
    return ew.where(b, weighted, values, Known.of(np.zeros(()), values.dtype))


@dataclass(frozen=True)
class _Plan:
    """Constants of the program. flagged: rows differ in which targets they have."""

    forest: Forest
    targets: int
    aggregate: Aggregate
    dtype: str
    depth: int
    flagged: bool

    @property
    def start(self) -> float:
        """The initial value of an aggregation."""
        limits = np.finfo(self.dtype)
        return {Aggregate.MIN: float(limits.max), Aggregate.MAX: float(limits.min)}.get(
            self.aggregate, 0.0
        )

    @cached_property
    def chunks(self) -> list[tuple[int, int]]:
        """The trees in parts that are each worth a thread."""
        trees = len(self.forest.roots)
        least = max(-(-PARALLEL_WORK // (2 * STEP * max(self.depth, 1))), -(-trees // CHUNKS))
        size = -(-least // LANES) * LANES
        return [(first, min(first + size, trees)) for first in range(0, trees, max(size, 1))]

    @cached_property
    def tables(self) -> dict[str, Known]:
        """Constants of the program by name. A node is a row of `ways`: feature, where it leads if
        its test holds and if not, and the test with its treatment of NaN; leaves lead to
        themselves.
        """
        forest = self.forest
        own = np.arange(forest.count, forest.count + forest.leaves)
        kinds = forest.tests + 8 * forest.missing
        inner = np.stack([forest.features, forest.yes, forest.no, kinds], axis=1)
        leaf = np.stack([0 * own, own, own, 0 * own], axis=1)
        integers = {
            "roots": forest.roots,
            "ways": np.concatenate([inner, leaf]),
            "places": forest.starts,
            "targets": np.append(forest.targets, 0),
            "first": np.append(forest.first, 0),
        }
        real = {
            "splits": np.concatenate([forest.splits, np.zeros(forest.leaves)]),
            "members": np.append(forest.members, 0),
            "weights": np.append(forest.weights, 0),
        }
        with np.errstate(over="ignore"):
            return {name: Known.of(array, "int32") for name, array in integers.items()} | {
                name: Known.of(array, self.dtype) for name, array in real.items()
            }


@dataclass(frozen=True)
class _Walk:
    """The program's buffers. outputs: scores, flags if the plan has them, and if the trees are
    shared out, the leaves of few rows.
    """

    plan: _Plan
    rows: Extent
    data: Any
    tables: dict[str, Any]
    outputs: list[Any]

    def run(self) -> None:
        """Blocks of rows over the threads; of few rows the parts of the trees."""
        chunks = len(self.plan.chunks)
        if chunks == 1:
            self._blocks()
            return
        with T.If(ex.prim(self.rows) < ex.prim(BLOCK)):
            with T.Then():
                self._parts()
            with T.Else():
                self._blocks()

    def _blocks(self) -> None:
        plan = self.plan
        work = BLOCK * len(plan.forest.roots) * max(plan.depth, 1) * STEP

        def block(task: Any) -> None:
            start = task * ex.prim(BLOCK)
            extent = tirx.min(ex.prim(BLOCK), ex.prim(self.rows) - start)

            with loop_programs.serial(extent) as r:
                self._begin(start + r)
            for first, lanes in _groups(len(plan.forest.roots)):
                with loop_programs.serial(extent) as r:
                    self._add(start + r, self._leaves(start + r, first, lanes))

        loop_programs.spread(ex.ceildiv(self.rows, BLOCK), block, work)

    def _begin(self, row: Any) -> None:
        with loop_programs.serial(self.plan.targets) as target:
            self.outputs[0][row, target] = tirx.const(self.plan.start, self.plan.dtype)
            if self.plan.flagged:
                self.outputs[1][row, target] = tirx.const(0, "int32")

    def _parts(self) -> None:
        """The leaves of all trees first, then their weights in the order of the trees: sums do not
        depend on how many rows there are.
        """
        plan, leaves = self.plan, self.outputs[-1]
        count, size = len(plan.chunks), plan.chunks[0][1]
        trees = len(plan.forest.roots)
        full = trees // LANES * LANES

        def part(task: Any) -> None:
            row, chunk = tirx.floordiv(task, ex.prim(count)), tirx.floormod(task, ex.prim(count))
            first = chunk * ex.prim(size)
            groups = tirx.floordiv(tirx.min(ex.prim(size), ex.prim(full) - first), ex.prim(LANES))
            with loop_programs.serial(groups) as group:
                self._note(row, first + group * ex.prim(LANES), LANES)
            if trees % LANES:
                with loop_programs.when(tirx.EQ(chunk, ex.prim(count - 1))):
                    self._note(row, ex.prim(full), trees % LANES)

        loop_programs.spread(ex.mul(self.rows, count), part, size * plan.depth * STEP)
        with loop_programs.serial(self.rows) as row:
            self._begin(row)
            with loop_programs.serial(trees) as tree:
                self._add(row, [leaves[row, tree].astype("int64")])

    def _note(self, row: Any, first: Any, lanes: int) -> None:
        for lane, leaf in enumerate(self._leaves(row, first, lanes)):
            self.outputs[-1][row, first + ex.prim(lane)] = leaf.astype("int32")

    def _leaves(self, row: Any, first: Any, lanes: int) -> list[Any]:
        """The numbers of the leaves that the row comes to in `lanes` trees from `first` on."""
        cells = [
            loop_programs.cell("int32", self.tables["roots"][first + ex.prim(lane)])
            for lane in range(lanes)
        ]
        if self.plan.forest.count:
            above = reduce(tirx.min, [cell[0] for cell in cells])
            with T.While(above < tirx.const(self.plan.forest.count, "int32")):
                for cell in cells:
                    cell[0] = self._step(row, cell[0].astype("int64"))
        return [cell[0].astype("int64") - ex.prim(self.plan.forest.count) for cell in cells]

    def _add(self, row: Any, leaves: Sequence[Any]) -> None:
        """Add the leaves' weights to the row's scores."""
        if self.plan.forest.dense(self.plan.targets):
            self._add_all(row, leaves)
        else:
            for leaf in leaves:
                self._add_some(row, leaf)

    def _add_all(self, row: Any, leaves: Sequence[Any]) -> None:
        """Leaves that each hold a weight for every target, in order."""
        targets, into = self.plan.targets, self.outputs[0]
        with loop_programs.serial(targets) as target:
            total = into[row, target]
            for leaf in leaves:
                weight = self.tables["weights"][leaf * ex.prim(targets) + target]
                total = _merged(total, weight, self.plan.aggregate)
            into[row, target] = total

    def _add_some(self, row: Any, leaf: Any) -> None:
        starts, into = self.tables["places"], self.outputs[0]
        begin, end = (starts[leaf + ex.prim(i)].astype("int64") for i in (0, 1))
        with loop_programs.serial(end, begin) as i:
            target = self.tables["targets"][i].astype("int64")
            into[row, target] = _merged(
                into[row, target], self.tables["weights"][i], self.plan.aggregate
            )
            if self.plan.flagged:
                self.outputs[1][row, target] = tirx.const(1, "int32")

    def _step(self, row: Any, node: Any) -> Any:
        """The next node of a row."""
        feature, yes, no, kind = (self.tables["ways"][node, ex.prim(i)] for i in range(4))
        value, split = self.data[row, feature.astype("int64")], self.tables["splits"][node]
        hit = self._holds(value, split, node, tirx.bitwise_and(kind, tirx.const(7, "int32")))
        if self.plan.forest.missing.any():
            passes_nan = kind >= tirx.const(8, "int32")
            hit = tirx.Or(hit, tirx.And(tirx.isnan(value), passes_nan))
        return tirx.Select(hit, yes, no)

    def _holds(self, value: Any, split: Any, node: Any, kind: Any) -> Any:
        result: Any = None
        for test in self.plan.forest.kinds():
            passes = self._among(value, node) if test is Test.MEMBER else _TESTS[test](value, split)
            if result is None:
                result = passes
            else:
                result = tirx.Select(tirx.EQ(kind, tirx.const(test.value, "int32")), passes, result)
        return result

    def _among(self, value: Any, node: Any) -> Any:
        member, first = loop_programs.cell("bool", False), self.tables["first"]
        # Leaves, which come behind the nodes, have no sets.
        own = tirx.min(node, ex.prim(self.plan.forest.count - 1))
        begin, end = (first[own + ex.prim(i)].astype("int64") for i in (0, 1))
        with loop_programs.serial(end, begin) as k:
            member[0] = tirx.Or(member[0], tirx.EQ(self.tables["members"][k], value))
        return member[0]


def _differs(value: Any, split: Any) -> Any:
    # TVM's code generator compares for inequality as if NaN were equal to everything.
    unordered = tirx.Or(tirx.isnan(value), tirx.isnan(split))
    return tirx.Or(unordered, tirx.NE(value, split))


_TESTS: dict[Test, Callable[[Any, Any], Any]] = {
    Test.LEQ: lambda value, split: value <= split,
    Test.LT: lambda value, split: value < split,
    Test.GTE: lambda value, split: value >= split,
    Test.GT: lambda value, split: value > split,
    Test.EQ: tirx.EQ,
    Test.NEQ: _differs,
}


def _groups(trees: int) -> Iterator[tuple[Any, int]]:
    """(first, lanes) of all groups of trees: a loop over the whole ones, then the rest."""
    full = trees // LANES
    if full:
        with loop_programs.serial(full) as group:
            yield group * ex.prim(LANES), LANES
    if trees % LANES:
        yield ex.prim(full * LANES), trees % LANES


def _merged(old: Any, weight: Any, aggregate: Aggregate) -> Any:
    match aggregate:
        case Aggregate.MIN:
            return tirx.min(old, weight)
        case Aggregate.MAX:
            return tirx.max(old, weight)
    return old + weight
