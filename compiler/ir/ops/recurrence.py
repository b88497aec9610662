"""The loop over time of a recurrent layer: a few rows at once, the sums of a block of units held in registers.

Units are cut into blocks of LANES. Every gate of a block is summed and applied in one go, so nothing but states goes
through memory; rows share what is read of the weights. Rows are independent of each other, so threads share them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import s_tir, tirx

from compiler.ir.ops.cells import Cell
from compiler.passes.tir.loops import Stmt, allocate, bind, bind_opaque, parallel, seq, serial, store, strips, vectorized, when

LANES = 8
TASKS = 8
"""Rows are shared out in at most so many parts."""
PARALLEL_FLOPS = 1 << 20

Element = Callable[[Any], Any]
"""Of the place in a block: a number there."""


def const(value: int) -> Any:
    """An int64 constant."""
    return tirx.IntImm("int64", value)


@dataclass(frozen=True)
class Recurrence:
    """A program of (x, weights, [extra], [peepholes], h, [c], [lengths]) to (every, last, [memory]); G gates, K blocks of LANES units.

    x [S, B, K*G*LANES]: the input's part of the sums, biases included; weights [K, H, G, LANES]; extra [K*LANES]: what a
    GRU that is linear before its reset adds before it; peepholes [3, K*LANES]; h, c [B, H]; lengths [B] int64.
    every [S, B, H], last and memory [B, H].
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
        """Rows of a tile: with their gates, their sums fill the registers. One where extents are open, which are slow to compile."""
        return {4: 3, 3: 4, 1: 8}[self.cell.gates] if self.fixed else 1

    @property
    def fixed(self) -> bool:
        """Whether the number of units is known."""
        return isinstance(self.hidden, tirx.IntImm)

    def function(self) -> tirx.PrimFunc:
        """The program, which needs no schedule."""
        gates, units = self.cell.gates, self.blocks * const(LANES)
        x = _buffer("x", [self.steps, self.batch, units * const(gates)])
        weights = _buffer("weights", [self.blocks, self.hidden, const(gates), const(LANES)])
        extra = _buffer("extra", [units]) if self.cell.resets_sum else None
        peepholes = _buffer("peepholes", [const(3), units]) if self.peepholes else None
        states = [_buffer(name, [self.batch, self.hidden]) for name in ("h", "c")[: 1 + self.two_states]]
        lengths = _buffer("lengths", [self.batch], "int64") if self.masked else None
        every = _buffer("every", [self.steps, self.batch, self.hidden])
        finals = [_buffer(name, [self.batch, self.hidden]) for name in ("last", "memory")[: 1 + self.two_states]]
        loops = _Loops(self, x, weights, extra, peepholes, lengths, states, every, finals)
        root = s_tir.SBlockRealize([], tirx.IntImm("bool", 1), s_tir.SBlock([], [], [], "root", loops.body()))
        parameters = [x, weights, extra, peepholes, *states, lengths, every, *finals]
        attributes = {"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": 8, "s_tir": True}
        return tirx.PrimFunc([buffer for buffer in parameters if buffer is not None], root).with_attrs(attributes)


def _buffer(name: str, shape: Sequence[Any], dtype: str = "float32") -> Any:
    return tirx.decl_buffer(list(shape), dtype, name=name)


@dataclass(frozen=True)
class _Task:
    """Rows from `first` on, `count` of them, and their scratch memory: state, next state, and what else the cell keeps."""

    first: Any
    count: Any
    state: Any
    following: Any
    kept: Any
    reset: Any


@dataclass(frozen=True)
class _Tile:
    """`rows` rows of a task from `row` on, at step `step` in block `block`; `sums` in registers."""

    task: _Task
    step: Any
    block: Any
    row: Any
    rows: int
    sums: Any


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
        flops = program.steps * program.batch * program.hidden * program.hidden * const(2 * program.cell.gates)

        def shared(each: Any) -> Stmt:
            tasks = tirx.ceildiv(program.batch, each)
            run = lambda t: self._task(t * each, each)  # noqa: E731
            if not program.fixed:
                return serial(tasks, run)
            return when(tirx.all(flops >= const(PARALLEL_FLOPS), tasks > 1), parallel(tasks, run), serial(tasks, run))

        return bind_opaque("each", self._share, shared)

    @property
    def _share(self) -> Any:
        """Rows of a task."""
        tile = const(self.program.rows)
        return tirx.max(tirx.ceildiv(tirx.ceildiv(self.program.batch, tile), const(TASKS)), const(1)) * tile

    def _task(self, first: Any, each: Any) -> Stmt:
        def rows(count: Any) -> Stmt:
            size = self._share * self.width
            made = [allocate([size], "float32", name, "global") for name in ("state", "following", "kept", "reset")]
            needed = made if self._two_phases else made[:3] if self.program.two_states else made[:2]
            task = _Task(first, count, *(buffer for buffer, _ in made))
            steps = serial(self.program.steps, lambda s: self._step(task, s), "step")
            return seq(*(allocation for _, allocation in needed), self._start(task), steps, self._finish(task))

        return bind("first", first, lambda first: bind("count", tirx.min(each, self.program.batch - first), rows))

    @property
    def _two_phases(self) -> bool:
        return self.program.cell.kind == "GRU" and not self.program.cell.resets_sum

    def _units(self, body: Callable[[Any], Stmt]) -> Stmt:
        return strips(self.program.hidden, LANES, body)

    def _start(self, task: _Task) -> Stmt:
        """Scratch states from the given ones, zeros past the last unit; zeros for what masked steps leave unwritten."""
        scratch = [task.state, task.kept][: len(self.states)]

        def row(r: Any) -> Stmt:
            n, at = task.first + r, r * self.width
            clear = strips(self.width, LANES, lambda j: seq(*(store(buffer, _f(0), at + j) for buffer in scratch)))
            copy = self._units(lambda j: seq(*(store(to, given[n, j], at + j) for to, given in zip(scratch, self.states, strict=True))))
            blank = serial(self.program.steps, lambda s: self._units(lambda j: store(self.every, _f(0), s, n, j)))
            return seq(clear, copy, blank if self.program.masked else None)

        return serial(task.count, row)

    def _finish(self, task: _Task) -> Stmt:
        scratch = [task.state, task.kept][: len(self.finals)]

        def row(r: Any) -> Stmt:
            at = r * self.width
            return self._units(
                lambda j: seq(*(store(to, kept[at + j], task.first + r, j) for to, kept in zip(self.finals, scratch, strict=True)))
            )

        return serial(task.count, row)

    def _step(self, task: _Task, s: Any) -> Stmt:
        cell = self.program.cell
        phases: list[tuple[tuple[int, ...], Any, Callable[[_Tile, int], Stmt]]]
        if self._two_phases:
            phases = [((0, 1), task.state, self._gru_gates), ((2,), task.reset, self._gru_candidate)]
        else:
            apply = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[cell.kind]
            phases = [(tuple(range(cell.gates)), task.state, apply)]
        return seq(*(self._blocks(task, s, *phase) for phase in phases), serial(task.count, lambda r: self._advance(task, s, r)))

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
        return tirx.max((tirx.min(self.lengths[n], steps) if self.program.masked else steps) - const(1) - s, const(0))

    def _blocks(self, task: _Task, s: Any, gates: tuple[int, ...], left: Any, apply: Callable[[_Tile, int], Stmt]) -> Stmt:
        def tiles(block: Any, done: Any, rows: int) -> Stmt:
            """Tiles of so many rows, then what is left in tiles of half as many."""
            full = (task.count - done) // const(rows)
            whole = serial(full, lambda t: self._tile(task, s, block, done + t * const(rows), rows, gates, left, apply), f"rows_{rows}")
            if rows == 1:
                return whole
            return seq(whole, tiles(block, done + full * const(rows), (rows + 1) // 2 if rows == self.program.rows else 1))

        return serial(self.program.blocks, lambda block: tiles(block, const(0), self.program.rows), "block")

    def _tile(
        self, task: _Task, s: Any, block: Any, row: Any, rows: int, gates: tuple[int, ...], left: Any, apply: Callable[[_Tile, int], Stmt]
    ) -> Stmt:
        """The sums of some gates, from the input's part and `left` times the weights, then what the cell does with them."""
        sums, allocation = allocate([rows * self.program.cell.gates * LANES], "float32", "sums")
        tile = _Tile(task, s, block, row, rows, sums)
        # A gate at a time: all sums and the rows' states fill the registers beside one vector of weights.
        pairs = [(r, g) for g in gates for r in range(rows)]

        def add(k: Any) -> Stmt:
            return seq(*(_lanes(lambda v, r=r, g=g: store(sums, term(r, g, k, v), self._place(r, g, v))) for r, g in pairs))  # type: ignore[misc]

        def term(r: int, g: int, k: Any, v: Any) -> Any:
            return sums[self._place(r, g, v)] + left[(row + const(r)) * self.width + k] * self.weights[block, k, const(g), v]

        start = [_lanes(lambda v, r=r, g=g: store(sums, self._given(tile, r, g, v), self._place(r, g, v))) for r, g in pairs]  # type: ignore[misc]
        ends = [self._if_active(s, task.first + row + const(r), apply(tile, r)) for r in range(rows)]
        return seq(allocation, *start, serial(self.program.hidden, add, "k"), *ends)

    def _place(self, r: int, g: int, v: Any) -> Any:
        return const((r * self.program.cell.gates + g) * LANES) + v

    def _given(self, tile: _Tile, r: int, g: int, v: Any) -> Any:
        """What a sum starts from."""
        if self.extra is not None and g == 2:
            return self.extra[tile.block * const(LANES) + v]
        return self._input(tile, r, g, v)

    def _input(self, tile: _Tile, r: int, g: int, v: Any) -> Any:
        n = tile.task.first + tile.row + const(r)
        return self.x[self._position(tile.step, n), n, (tile.block * const(self.program.cell.gates) + const(g)) * const(LANES) + v]

    def _unit(self, tile: _Tile, r: int, v: Any) -> Any:
        """The place of a unit in scratch memory."""
        return (tile.row + const(r)) * self.width + tile.block * const(LANES) + v

    def _peephole(self, tile: _Tile, index: int, v: Any, memory: Any) -> Any:
        return _f(0) if self.peepholes is None else self.peepholes[const(index), tile.block * const(LANES) + v] * memory

    def _lstm(self, tile: _Tile, r: int) -> Stmt:
        act, task = self.program.cell.act, tile.task

        def gate(g: int, v: Any) -> Any:
            return tile.sums[self._place(r, g, v)]

        def let_in(v: Any) -> Stmt:
            open_ = act(0, gate(0, v) + self._peephole(tile, 0, v, task.kept[self._unit(tile, r, v)]))
            return store(tile.sums, open_, self._place(r, 0, v))

        def memory(v: Any) -> Stmt:
            before = task.kept[self._unit(tile, r, v)]
            forget = _f(1) - gate(0, v) if self.program.cell.input_forget else act(0, gate(2, v) + self._peephole(tile, 2, v, before))
            return store(task.kept, forget * before + gate(0, v) * act(1, gate(3, v)), self._unit(tile, r, v))

        def output(v: Any) -> Stmt:
            now, let_out = task.kept[self._unit(tile, r, v)], self.program.cell.activations[2]
            value = act(0, gate(1, v) + self._peephole(tile, 1, v, now)) * let_out(now)
            return store(task.following, value, self._unit(tile, r, v))

        return seq(_lanes(let_in), _lanes(memory), _lanes(output))

    def _gru(self, tile: _Tile, r: int) -> Stmt:
        """Linear before the reset: all sums are of the state itself."""
        act, task = self.program.cell.act, tile.task

        def output(v: Any) -> Stmt:
            keep, reset = (tile.sums[self._place(r, g, v)] for g in (0, 1))
            candidate = act(1, self._input(tile, r, 2, v) + reset * tile.sums[self._place(r, 2, v)])
            at = self._unit(tile, r, v)
            return store(task.following, (_f(1) - keep) * candidate + keep * task.state[at], at)

        return seq(self._applied(tile, r, 0), self._applied(tile, r, 1), _lanes(output))

    def _applied(self, tile: _Tile, r: int, g: int) -> Stmt:
        """A gate in place of its sum: what is used twice may not hold the variables of a function's polynomial twice."""
        return _lanes(lambda v: store(tile.sums, self.program.cell.act(0, tile.sums[self._place(r, g, v)]), self._place(r, g, v)))

    def _gru_gates(self, tile: _Tile, r: int) -> Stmt:
        act, task = self.program.cell.act, tile.task

        def both(v: Any) -> Stmt:
            at = self._unit(tile, r, v)
            update, reset = (act(0, tile.sums[self._place(r, g, v)]) for g in (0, 1))
            return seq(store(task.kept, update, at), store(task.reset, reset * task.state[at], at))

        return _lanes(both)

    def _gru_candidate(self, tile: _Tile, r: int) -> Stmt:
        act, task = self.program.cell.act, tile.task

        def output(v: Any) -> Stmt:
            at = self._unit(tile, r, v)
            candidate, update = act(1, tile.sums[self._place(r, 2, v)]), task.kept[at]
            return store(task.following, (_f(1) - update) * candidate + update * task.state[at], at)

        return _lanes(output)

    def _rnn(self, tile: _Tile, r: int) -> Stmt:
        return _lanes(
            lambda v: store(tile.task.following, self.program.cell.act(0, tile.sums[self._place(r, 0, v)]), self._unit(tile, r, v))
        )


def _lanes(body: Callable[[Any], Stmt]) -> Stmt:
    return vectorized(LANES, body)


def _f(value: float) -> Any:
    return tirx.FloatImm("float32", value)
