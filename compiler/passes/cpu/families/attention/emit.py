"""The attention kernel: for every head, keys laid out in panels, then scores, softmax and the
second product a few rows at a time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.loop_nest import combine_of, vectorizable
from compiler.passes.cpu.shared.register_tile import along, products
from compiler.passes.cpu.shared.sharing import extents_of, share_parts, with_extents
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, Table, const, fixed, load, loads, replace_loads, substitute
from compiler.tir.flat import Flattener, analyzer_for
from compiler.tir.loops import (
    PARALLEL_FLOPS,
    Stmt,
    allocate,
    bind,
    bind_each,
    product,
    seq,
    serial,
    store,
    vectorized,
    when,
)
from compiler.tir.stages import Axis, Program, Stage

STAGES = tuple(
    f"attention_{name}"
    for name in ("scores", "changed", "greatest", "powers", "total", "summed", "output")
)
"""Names of the program's stages, by which the kernel is found."""

ROWS = 6
"""Queries whose scores are worked out together."""

TASK_ROWS = 64
"""Queries of one task where there are few heads to share out."""


@dataclass(frozen=True)
class Attention:
    """query, key, value, score: flat loads over the axes `batch`, `row`, `column` (of scores),
    `depth` and `width`.

    changed: the changed score, the score itself being the element of `total`; target: where the
    result goes.
    """

    batch: tuple[Axis, ...]
    row: Axis
    column: Axis
    depth: Axis
    width: Axis
    query: Any
    key: Any
    value: Any
    changed: Expr
    total: Any
    target: Any
    prelude: tuple[Stmt, ...]


def read_attention(program: Program) -> Attention | None:
    """The program as `compiler.passes.graph.fuse_attention` writes it; None if it is another."""
    names = [stage.name for stage in program.stages]
    if not names or names[0] != STAGES[0] or names[-1] != STAGES[-1]:
        return None
    stages = dict(zip(names, program.stages, strict=True))
    scores, summed, output = stages[STAGES[0]], stages[STAGES[5]], stages[STAGES[6]]
    flat = Flattener.of(program)
    *batch, row, column = scores.spatial
    total = tirx.decl_buffer([const(1)], "float32", name="score", scope="local")
    query, key = _term(scores).a, _term(scores).b
    powers, value = _term(summed).a, _term(summed).b
    if not powers.source.same_as(stages[STAGES[3]].buffer):
        powers, value = value, powers
    axes, width = (*batch, row, column), summed.spatial[-1]
    analyzer = analyzer_for((*axes, *scores.reduced))
    at_scores = _onto((*summed.spatial[:-1], *summed.reduced), axes)
    (weighed,) = (one for one in loads(output.value) if one.source.same_as(summed.buffer))
    at_output = dict(zip(weighed.indices, [axis.var for axis in (*batch, row, width)], strict=True))
    return Attention(
        tuple(batch),
        row,
        column,
        scores.reduced[0],
        width,
        flat.value(query, analyzer),
        flat.value(key, analyzer),
        flat.value(substitute(value, at_scores), analyzer),
        flat.value(_changed(stages, axes, total), analyzer),
        total,
        flat.value(
            load(output.buffer, [substitute(index, at_output) for index in output.indices]),
            analyzer,
        ),
        tuple(flat.prelude),
    )


def _onto(axes: tuple[Axis, ...], others: tuple[Axis, ...]) -> Table:
    """The variables of the others for those of the axes."""
    return {axis.var: other.var for axis, other in zip(axes, others, strict=True)}


def _term(stage: Stage) -> Any:
    combine = combine_of(stage)
    assert combine is not None
    return combine.term


def _changed(stages: dict[str, Stage], axes: tuple[Axis, ...], total: Any) -> Expr:
    """The value of the second stage over the axes of the first; it may have been moved into its
    readers.
    """
    scores, greatest = stages[STAGES[0]], stages[STAGES[2]]
    changed = stages.get(STAGES[1])
    value, own = (
        (_term(greatest), greatest.axes) if changed is None else (changed.value, changed.axes)
    )
    return replace_loads(value, scores.buffer, load(total, [const(0)]), _onto(own, axes))


def emit_attention(attention: Attention, unit: VectorUnit) -> Stmt:
    """The kernel."""

    def tasks(axes: tuple[Axis, ...]) -> Stmt:
        *batch, row, column = axes
        return _Kernel(replace(attention, batch=tuple(batch), row=row, column=column), unit).tasks()

    return seq(
        *attention.prelude, with_extents((*attention.batch, attention.row, attention.column), tasks)
    )


@dataclass(frozen=True)
class _Kernel:
    attention: Attention
    unit: VectorUnit

    @property
    def m(self) -> Expr:
        return self.attention.row.extent

    @property
    def n(self) -> Expr:
        return self.attention.column.extent

    @property
    def lanes(self) -> int:
        return self.unit.lanes(32)

    @property
    def panel(self) -> int:
        return 2 * self.lanes

    @property
    def depth(self) -> int:
        return fixed(self.attention.depth.extent)

    @property
    def width(self) -> int:
        return fixed(self.attention.width.extent)

    def tasks(self) -> Stmt:
        """A task is all rows of a head, or some of them where heads are few."""
        heads = product(extents_of(self.attention.batch))
        each = tirx.Select(heads >= const(8), tirx.max(self.m, const(1)), const(TASK_ROWS))
        work = heads * self.m * self.n * const(2 * (self.depth + self.width))

        def share(each: Expr) -> Stmt:
            def rows(at: Table, part: Expr) -> Stmt:
                return bind("first", part * each, lambda first: self._head(at, first, each))

            return share_parts(
                self.attention.batch,
                tirx.ceildiv(self.m, each),
                work >= const(PARALLEL_FLOPS),
                rows,
            )

        return bind("each", each, share)

    def _head(self, at: Table, first: Expr, each: Expr) -> Stmt:
        """The rows from `first` on of one head."""
        padded = tirx.ceildiv(self.n, const(self.panel)) * const(self.panel)

        def run(padded: Expr) -> Stmt:
            keys, one = allocate([padded * const(self.depth)], "float32", "keys", "global")
            scores, two = allocate([padded * const(ROWS)], "float32", "scores", "global")
            count = tirx.min(each, self.m - first)

            def block(size: int, packed: Any) -> Callable[[Expr], Stmt]:
                return lambda b: bind(
                    "row",
                    first + b * const(size),
                    lambda row: self._block(size, at, row, packed, scores, padded),
                )

            many = seq(
                one,
                self._pack(at, keys),
                serial(tirx.ceildiv(count, const(ROWS)), block(ROWS, keys), "rows"),
            )
            return seq(two, when(count > const(2), many, serial(count, block(1, None), "rows")))

        return bind("padded", padded, run)

    def _pack(self, at: Table, keys: Any) -> Stmt:
        """keys[panel, depth, lane]: the keys of the head, the last one repeated to fill the last
        panel.
        """
        panel, depth = const(self.panel), const(self.depth)

        def one(p: Expr, lane: Expr) -> Stmt:
            def copy(column: Expr) -> Stmt:
                table = {**at, self.attention.column.var: column}

                def element(k: Expr) -> Stmt:
                    return store(
                        keys,
                        substitute(self.attention.key, {**table, self.attention.depth.var: k}),
                        (p * depth + k) * panel + lane,
                    )

                return serial(depth, element, "k")

            return bind("column", tirx.min(p * panel + lane, self.n - const(1)), copy)

        return serial(
            tirx.ceildiv(self.n, panel),
            lambda p: serial(panel, lambda lane: one(p, lane), "lane"),
            "panel",
        )

    def _block(self, size: int, at: Table, row: Expr, keys: Any, scores: Any, padded: Expr) -> Stmt:
        sums, allocation = allocate([size], "float32", "totals")

        def place_of(i: Expr) -> Expr:
            return tirx.min(row + i, self.m - const(1))

        def softmax(i: Expr) -> Stmt:
            def one(place: Expr) -> Stmt:
                return self._softmax(
                    {**at, self.attention.row.var: place}, scores, i * padded, sums, i
                )

            return bind("place", place_of(i), one)

        def run(rows: list[Any]) -> Stmt:
            places = [{**at, self.attention.row.var: row} for row in rows]
            raw = (
                self._scores(places, keys, scores, padded)
                if keys is not None
                else self._dots(places[0], scores)
            )
            return seq(
                allocation,
                raw,
                serial(size, softmax, "row"),
                self._combined(places, scores, padded, sums),
            )

        return bind_each("row", [place_of(const(i)) for i in range(size)], run)

    def _scores(self, places: list[Table], keys: Any, scores: Any, padded: Expr) -> Stmt:
        """Plain products of the queries with all keys."""
        depth, panel = const(self.depth), const(self.panel)

        def one(p: Expr) -> Stmt:
            return products(
                len(places),
                self.panel,
                self.lanes,
                along(depth, self.unit.together),
                lambda i, k: substitute(
                    self.attention.query, {**places[i], self.attention.depth.var: k}
                ),
                lambda k, lane: load(keys, [(p * depth + k) * panel + lane]),
                None,
                lambda i, lane, total: store(scores, total, const(i) * padded + p * panel + lane),
            )

        return serial(tirx.ceildiv(self.n, panel), one, "panel")

    def _dots(self, place: Table, scores: Any) -> Stmt:
        """The same for one query, straight from the keys: they are read once."""
        lanes = min(_dividing(self.depth, self.lanes), self.lanes)

        def dot(j: Expr) -> Stmt:
            acc, allocation = allocate([lanes], "float32", "acc")
            table = {**place, self.attention.column.var: j}

            def term(k: Expr) -> Expr:
                here = {**table, self.attention.depth.var: k}
                return substitute(self.attention.query, here) * substitute(self.attention.key, here)

            clear = vectorized(lanes, lambda lane: store(acc, tirx.const(0, "float32"), lane))

            def step(s: Expr) -> Stmt:
                def add(lane: Expr) -> Stmt:
                    return store(acc, load(acc, [lane]) + term(s * const(lanes) + lane), lane)

                return vectorized(lanes, add)

            total = _pairwise([load(acc, [const(lane)]) for lane in range(lanes)], prim.Add)
            return seq(
                allocation, clear, serial(self.depth // lanes, step, "k"), store(scores, total, j)
            )

        return serial(self.n, dot, "column")

    def _softmax(self, place: Table, scores: Any, base: Expr, sums: Any, i: Expr) -> Stmt:
        """Scores become powers in place, their sum goes to sums[i]."""

        def changed(j: Expr) -> Expr:
            at = {**place, self.attention.column.var: j}
            return replace_loads(
                self.attention.changed, self.attention.total, load(scores, [base + j]), at
            )

        low, zero = tirx.const(float("-inf"), "float32"), tirx.const(0, "float32")
        lanes = self.lanes if vectorizable(self.attention.changed, self.attention.column.var) else 1
        cell, allocation = allocate([1], "float32", "greatest")

        def power(j: Expr) -> Expr:
            return tirx.exp(load(scores, [base + j]) - load(cell, [const(0)]))

        return seq(
            allocation,
            self._over_columns(
                scores,
                base,
                lanes,
                changed,
                tirx.max,
                low,
                lambda total: store(cell, total, const(0)),
            ),
            self._over_columns(
                scores, base, self.lanes, power, prim.Add, zero, lambda total: store(sums, total, i)
            ),
        )

    def _over_columns(
        self,
        scores: Any,
        base: Expr,
        lanes: int,
        value: Callable[[Expr], Expr],
        node: Callable[[Expr, Expr], Expr],
        start: Expr,
        finish: Callable[[Expr], Stmt],
    ) -> Stmt:
        """scores[base + j] = value(j) for every column, and finish(these combined by `node`)."""
        acc, allocation = allocate([lanes + 1], "float32", "acc")
        full = self.n // const(lanes)

        def put(j: Expr, slot: Expr) -> Stmt:
            return seq(
                store(scores, value(j), base + j),
                store(acc, node(load(acc, [slot]), load(scores, [base + j])), slot),
            )

        return seq(
            allocation,
            *(store(acc, start, const(slot)) for slot in range(lanes + 1)),
            serial(
                full,
                lambda c: vectorized(lanes, lambda lane: put(c * const(lanes) + lane, lane)),
                "strip",
            ),
            serial(
                self.n - full * const(lanes),
                lambda t: put(full * const(lanes) + t, const(lanes)),
                "column",
            ),
            finish(_pairwise([load(acc, [const(slot)]) for slot in range(lanes + 1)], node)),
        )

    def _combined(self, places: list[Table], scores: Any, padded: Expr, sums: Any) -> Stmt:
        """The values weighed by the powers, over their sum."""
        width = _dividing(self.width, self.lanes)
        attention = self.attention

        def columns(c: Expr) -> Stmt:
            def place(i: int, lane: Expr) -> Table:
                return {**places[i], attention.width.var: c * const(width) + lane}

            def value(k: Expr, lane: Expr) -> Expr:
                return substitute(attention.value, {**place(0, lane), attention.column.var: k})

            def finish(i: int, lane: Expr, total: Expr) -> Stmt:
                target = attention.target
                return store(
                    target.source,
                    total / load(sums, [const(i)]),
                    substitute(target.indices[0], place(i, lane)),
                )

            return products(
                len(places),
                width,
                min(width, self.lanes),
                along(self.n, self.unit.together),
                lambda i, k: load(scores, [const(i) * padded + k]),
                value,
                None,
                finish,
            )

        return serial(self.width // width, columns, "columns")


def _dividing(size: int, lanes: int) -> int:
    """The widest of two vectors, one and half of one that divides `size`, else 1."""
    return next(width for width in (2 * lanes, lanes, max(lanes // 2, 1), 1) if size % width == 0)


def _pairwise(values: list[Expr], node: Callable[[Expr, Expr], Expr]) -> Expr:
    while len(values) > 1:
        values = [
            node(*values[i : i + 2]) if i + 1 < len(values) else values[i]
            for i in range(0, len(values), 2)
        ]
    return values[0]
