"""The loop over time of a recurrent layer: a few rows at once, the sums of a block of units held in
registers.

Units are cut into blocks of LANES. Every gate of a block is summed and applied in one go, so
nothing but states goes through memory; rows share what is read of the weights. Rows are independent
of each other, so threads share them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import s_tir, tirx

from compiler.ir.ops.cells import Cell
from compiler.tir.exprs import const
from compiler.tir.loops import (
    PARALLEL_FLOPS,
    Stmt,
    allocate,
    bind,
    bind_opaque,
    seq,
    serial,
    share_out,
    store,
    strips,
    vectorized,
    when,
)

LANES = 8
SUMS = 12
"""Vectors of sums held in registers at once."""
TASKS = 8
"""Rows are shared out in at most so many parts."""
SHARED_TILES = 6
"""Tiles of a task where the weights do not stay in the cache: every task reads all of them at every
step.
"""
CACHED = 256 << 10
"""Bytes of weights that are taken to stay in the cache."""

Element = Callable[[Any], Any]
"""Of the place in a block: a number there."""


@dataclass(frozen=True)
class Recurrence:
    """A program of (x, weights, [extra], [peepholes], h, [c], [lengths]) to (every, last,
    [memory]); G gates, K blocks of LANES units.

    x [S, B, K*G*LANES]: the input's part of the sums, biases included; weights [K, G, H, LANES];
    extra [K*LANES]: what a GRU that is linear before its reset adds before it; peepholes [3,
    K*LANES]; h, c [B, H]; lengths [B] int64. every [S, B, H], last and memory [B, H].
    """

    cell: Cell
    hidden: Any
    blocks: Any
    backward: bool
    peepholes: bool
    masked: bool
    steps: Any = field(default_factory=lambda: tirx.Var("steps", "int64"))
    batch: Any = field(default_factory=lambda: tirx.Var("batch", "int64"))

    @property
    def two_states(self) -> bool:
        """Whether cells keep a memory beside their output."""
        return self.cell.kind == "LSTM"

    @property
    def rows(self) -> int:
        """Rows of a tile, whose sums for two or three gates fill the registers. One where extents
        are open, which are slow to compile.
        """
        return (
            (4 if self.cell.resets_sum else 8 if self.cell.gates == 1 else 6) if self.fixed else 1
        )

    @property
    def fixed(self) -> bool:
        """Whether the number of units is known."""
        return isinstance(self.hidden, tirx.IntImm)

    def function(self) -> tirx.PrimFunc:
        """The program, which needs no schedule."""
        gates, units = self.cell.gates, self.blocks * const(LANES)
        x = _buffer("x", [self.steps, self.batch, units * const(gates)])
        weights = _buffer("weights", [self.blocks, const(gates), self.hidden, const(LANES)])
        extra = _buffer("extra", [units]) if self.cell.resets_sum else None
        peepholes = _buffer("peepholes", [const(3), units]) if self.peepholes else None
        states = [
            _buffer(name, [self.batch, self.hidden]) for name in ("h", "c")[: 1 + self.two_states]
        ]
        lengths = _buffer("lengths", [self.batch], "int64") if self.masked else None
        every = _buffer("every", [self.steps, self.batch, self.hidden])
        finals = [
            _buffer(name, [self.batch, self.hidden])
            for name in ("last", "memory")[: 1 + self.two_states]
        ]
        loops = _Loops(self, x, weights, extra, peepholes, lengths, states, every, finals)
        root = s_tir.SBlockRealize(
            [], tirx.IntImm("bool", 1), s_tir.SBlock([], [], [], "root", loops.body())
        )
        parameters = [x, weights, extra, peepholes, *states, lengths, every, *finals]
        attributes = {
            "tirx.noalias": True,
            "tirx.is_scheduled": True,
            "op_pattern": 8,
            "s_tir": True,
        }
        return tirx.PrimFunc(
            [buffer for buffer in parameters if buffer is not None], root
        ).with_attrs(attributes)


def _buffer(name: str, shape: Sequence[Any], dtype: str = "float32") -> Any:
    return tirx.decl_buffer(list(shape), dtype, name=name)


@dataclass(frozen=True)
class _Task:
    """Rows from `first` on, `count` of them, and their scratch memory: sums of a block, state, next
    state, what else the cell keeps.
    """

    first: Any
    count: Any
    sums: Any
    state: Any
    following: Any
    kept: Any
    reset: Any


@dataclass(frozen=True)
class _Unit:
    """The units of block `block` for row `row` of a task at step `step`."""

    task: _Task
    step: Any
    block: Any
    row: Any


@dataclass(frozen=True)
class _Loops:
    program: Recurrence
    x: Any
    weights: Any
    extra: Any
    peepholes: Any
    lengths: Any
    states: list[Any]
    every: Any
    finals: list[Any]

    @property
    def width(self) -> Any:
        """Elements of a row of scratch memory."""
        return self.program.blocks * const(LANES)

    def body(self) -> Stmt:
        """Tasks of rows, on threads where there is enough to do."""
        program = self.program
        flops = (
            program.steps
            * program.batch
            * program.hidden
            * program.hidden
            * const(2 * program.cell.gates)
        )

        def shared(each: Any) -> Stmt:
            tasks = tirx.ceildiv(program.batch, each)
            worth = program.fixed and tirx.all(flops >= const(PARALLEL_FLOPS), tasks > 1)
            return share_out(tasks, worth, lambda t: self._task(t * each, each))

        return bind_opaque("each", self._share, shared)

    @property
    def _share(self) -> Any:
        """Rows of a task."""
        tile = const(self.program.rows)
        hidden = self.program.hidden.value if self.program.fixed else 1
        least = 1 if 4 * self.program.cell.gates * hidden * hidden <= CACHED else SHARED_TILES
        tiles = tirx.ceildiv(self.program.batch, tile)
        tasks = tirx.max(tirx.min(const(TASKS), tiles // const(least)), const(1))
        return tirx.max(tirx.ceildiv(tiles, tasks), const(1)) * tile

    def _task(self, first: Any, each: Any) -> Stmt:
        def rows(count: Any) -> Stmt:
            size = self._share * self.width
            sums = allocate(
                [self._share * const(self.program.cell.gates * LANES)], "float32", "sums", "global"
            )
            made = [
                sums,
                *(
                    allocate([size], "float32", name, "global")
                    for name in ("state", "following", "kept", "reset")
                ),
            ]
            needed = made if self._two_phases else made[:4] if self.program.two_states else made[:3]
            task = _Task(first, count, *(buffer for buffer, _ in made))
            steps = serial(self.program.steps, lambda s: self._step(task, s), "step")
            return seq(
                *(allocation for _, allocation in needed),
                self._start(task),
                steps,
                self._finish(task),
            )

        return bind(
            "first",
            first,
            lambda first: bind("count", tirx.min(each, self.program.batch - first), rows),
        )

    @property
    def _two_phases(self) -> bool:
        return self.program.cell.kind == "GRU" and not self.program.cell.resets_sum

    def _units(self, body: Callable[[Any], Stmt]) -> Stmt:
        return strips(self.program.hidden, LANES, body)

    def _start(self, task: _Task) -> Stmt:
        """Scratch states from the given ones, zeros past the last unit; zeros for what masked steps
        leave unwritten.
        """
        scratch = [task.state, task.kept][: len(self.states)]

        def row(r: Any) -> Stmt:
            n, at = task.first + r, r * self.width
            clear = strips(
                self.width,
                LANES,
                lambda j: seq(*(store(buffer, _f(0), at + j) for buffer in scratch)),
            )
            copy = self._units(
                lambda j: seq(
                    *(
                        store(to, given[n, j], at + j)
                        for to, given in zip(scratch, self.states, strict=True)
                    )
                )
            )
            blank = serial(
                self.program.steps,
                lambda s: self._units(lambda j: store(self.every, _f(0), s, n, j)),
            )
            return seq(clear, copy, blank if self.program.masked else None)

        return serial(task.count, row)

    def _finish(self, task: _Task) -> Stmt:
        scratch = [task.state, task.kept][: len(self.finals)]

        def row(r: Any) -> Stmt:
            at = r * self.width
            return self._units(
                lambda j: seq(
                    *(
                        store(to, kept[at + j], task.first + r, j)
                        for to, kept in zip(self.finals, scratch, strict=True)
                    )
                )
            )

        return serial(task.count, row)

    def _step(self, task: _Task, s: Any) -> Stmt:
        cell = self.program.cell
        phases: list[tuple[tuple[int, ...], Any, Callable[[_Unit], Stmt]]]
        if self._two_phases:
            phases = [
                ((0, 1), task.state, self._gru_gates),
                ((2,), task.reset, self._gru_candidate),
            ]
        else:
            apply = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[cell.kind]
            phases = [(tuple(range(cell.gates)), task.state, apply)]
        return seq(
            *(self._blocks(task, s, *phase) for phase in phases),
            serial(task.count, lambda r: self._advance(task, s, r)),
        )

    def _advance(self, task: _Task, s: Any, r: Any) -> Stmt:
        """The next state of a row becomes its state and one of the results."""
        n, at = task.first + r, r * self.width
        keep = self._units(
            lambda j: seq(
                store(task.state, task.following[at + j], at + j),
                store(self.every, task.following[at + j], self._position(s, n), n, j),
            )
        )
        return self._if_active(s, n, keep)

    def _if_active(self, s: Any, n: Any, body: Stmt) -> Stmt:
        return when(s < self.lengths[n], body) if self.program.masked else body

    def _position(self, s: Any, n: Any) -> Any:
        """Where step `s` of a row stands in time."""
        if not self.program.backward:
            return s
        steps = self.program.steps
        return tirx.max(
            (tirx.min(self.lengths[n], steps) if self.program.masked else steps) - const(1) - s,
            const(0),
        )

    def _blocks(
        self, task: _Task, s: Any, gates: tuple[int, ...], left: Any, apply: Callable[[_Unit], Stmt]
    ) -> Stmt:
        """The sums of some gates, a block at a time, from the input's part and `left` times the
        weights; then what the cell does.
        """

        def tiles(block: Any, done: Any, rows: int) -> Stmt:
            """Tiles of so many rows, then what is left in smaller ones; some gates at a time, whose
            weights stay in the cache.
            """
            full = (task.count - done) // const(rows)

            def whole(part: Sequence[int]) -> Stmt:
                return serial(
                    full,
                    lambda t: self._tile(task, s, block, done + t * const(rows), rows, part, left),
                    f"rows_{rows}",
                )

            smaller = rows // 2 if rows != 6 else 4
            rest = None if rows == 1 else tiles(block, done + full * const(rows), smaller)
            return seq(*map(whole, _parts(gates, rows)), rest)

        def cells(block: Any) -> Stmt:
            return serial(
                task.count,
                lambda r: self._if_active(s, task.first + r, apply(_Unit(task, s, block, r))),
                "row",
            )

        return serial(
            self.program.blocks,
            lambda block: seq(tiles(block, const(0), self.program.rows), cells(block)),
            "block",
        )

    def _tile(
        self, task: _Task, s: Any, block: Any, row: Any, rows: int, gates: Sequence[int], left: Any
    ) -> Stmt:
        """The sums of `rows` rows from `row` on, in registers."""
        units = [_Unit(task, s, block, row + const(r)) for r in range(rows)]
        acc, allocation = allocate([len(units) * len(gates) * LANES], "float32", "acc")
        # Of rows and gates, the fewer stay in registers beside the sums while the others are
        # walked.
        walk = [(r, g) for r in range(len(units)) for g in range(len(gates))]
        pairs = sorted(walk, key=lambda pair: pair[::-1]) if len(units) <= len(gates) else walk

        def each(body: Callable[[_Unit, int, Any, Any], Stmt]) -> Stmt:
            def one(r: int, g: int) -> Stmt:
                place = const((r * len(gates) + g) * LANES)
                return _lanes(lambda v: body(units[r], gates[g], v, place + v))

            return seq(*(one(r, g) for r, g in pairs))

        def add(k: Any) -> Stmt:
            def term(unit: _Unit, g: int, v: Any) -> Any:
                return left[unit.row * self.width + k] * self.weights[unit.block, const(g), k, v]

            return each(lambda unit, g, v, at: store(acc, acc[at] + term(unit, g, v), at))

        start = each(lambda unit, g, v, at: store(acc, self._given(unit, g, v), at))
        keep = each(lambda unit, g, v, at: store(unit.task.sums, acc[at], self._place(unit, g, v)))
        return seq(allocation, start, serial(self.program.hidden, add, "k"), keep)

    def _place(self, unit: _Unit, g: int, v: Any) -> Any:
        return (unit.row * const(self.program.cell.gates) + const(g)) * const(LANES) + v

    def _sum(self, unit: _Unit, g: int, v: Any) -> Any:
        return unit.task.sums[self._place(unit, g, v)]

    def _given(self, unit: _Unit, g: int, v: Any) -> Any:
        """What a sum starts from."""
        if self.extra is not None and g == 2:
            return self.extra[unit.block * const(LANES) + v]
        return self._input(unit, g, v)

    def _input(self, unit: _Unit, g: int, v: Any) -> Any:
        n = unit.task.first + unit.row
        return self.x[
            self._position(unit.step, n),
            n,
            (unit.block * const(self.program.cell.gates) + const(g)) * const(LANES) + v,
        ]

    def _unit(self, unit: _Unit, v: Any) -> Any:
        """The place of a unit in scratch memory."""
        return unit.row * self.width + unit.block * const(LANES) + v

    def _peephole(self, unit: _Unit, index: int, v: Any, memory: Any) -> Any:
        return (
            _f(0)
            if self.peepholes is None
            else self.peepholes[const(index), unit.block * const(LANES) + v] * memory
        )

    def _lstm(self, unit: _Unit) -> Stmt:
        act, task = self.program.cell.act, unit.task

        def gate(g: int, v: Any) -> Any:
            return self._sum(unit, g, v)

        def let_in(v: Any) -> Stmt:
            open_ = act(0, gate(0, v) + self._peephole(unit, 0, v, task.kept[self._unit(unit, v)]))
            return store(unit.task.sums, open_, self._place(unit, 0, v))

        def memory(v: Any) -> Stmt:
            before = task.kept[self._unit(unit, v)]
            forget = (
                _f(1) - gate(0, v)
                if self.program.cell.input_forget
                else act(0, gate(2, v) + self._peephole(unit, 2, v, before))
            )
            return store(
                task.kept, forget * before + gate(0, v) * act(1, gate(3, v)), self._unit(unit, v)
            )

        def output(v: Any) -> Stmt:
            now, let_out = task.kept[self._unit(unit, v)], self.program.cell.activations[2]
            value = act(0, gate(1, v) + self._peephole(unit, 1, v, now)) * let_out(now)
            return store(task.following, value, self._unit(unit, v))

        return seq(_lanes(let_in), _lanes(memory), _lanes(output))

    def _gru(self, unit: _Unit) -> Stmt:
        """Linear before the reset: all sums are of the state itself."""
        act, task = self.program.cell.act, unit.task

        def output(v: Any) -> Stmt:
            keep, reset = (self._sum(unit, g, v) for g in (0, 1))
            candidate = act(1, self._input(unit, 2, v) + reset * self._sum(unit, 2, v))
            at = self._unit(unit, v)
            return store(task.following, (_f(1) - keep) * candidate + keep * task.state[at], at)

        return seq(self._applied(unit, 0), self._applied(unit, 1), _lanes(output))

    def _applied(self, unit: _Unit, g: int) -> Stmt:
        """A gate in place of its sum: what is used twice may not hold the variables of a function's
        polynomial twice.
        """
        return _lanes(
            lambda v: store(
                unit.task.sums,
                self.program.cell.act(0, self._sum(unit, g, v)),
                self._place(unit, g, v),
            )
        )

    def _gru_gates(self, unit: _Unit) -> Stmt:
        act, task = self.program.cell.act, unit.task

        def both(v: Any) -> Stmt:
            at = self._unit(unit, v)
            update, reset = (act(0, self._sum(unit, g, v)) for g in (0, 1))
            return seq(store(task.kept, update, at), store(task.reset, reset * task.state[at], at))

        return _lanes(both)

    def _gru_candidate(self, unit: _Unit) -> Stmt:
        act, task = self.program.cell.act, unit.task

        def output(v: Any) -> Stmt:
            at = self._unit(unit, v)
            candidate, update = act(1, self._sum(unit, 2, v)), task.kept[at]
            return store(task.following, (_f(1) - update) * candidate + update * task.state[at], at)

        return _lanes(output)

    def _rnn(self, unit: _Unit) -> Stmt:
        return _lanes(
            lambda v: store(
                unit.task.following,
                self.program.cell.act(0, self._sum(unit, 0, v)),
                self._unit(unit, v),
            )
        )


def _parts(gates: Sequence[int], rows: int) -> list[Sequence[int]]:
    """Gates summed together for so many rows: as many as the registers hold, two of four rather
    than three.
    """
    together = max(SUMS // rows, 1)
    together = 2 if 2 <= together < len(gates) else together
    return [gates[start : start + together] for start in range(0, len(gates), together)]


def _lanes(body: Callable[[Any], Stmt]) -> Stmt:
    return vectorized(LANES, body)


def _f(value: float) -> Any:
    return tirx.FloatImm("float32", value)
