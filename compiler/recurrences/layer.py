"""A recurrent layer as its program takes it: the cell, extents, parameters and how they are laid
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from compiler.recurrences.cells import Cell
from compiler.targets.architecture import IntegerDot
from compiler.tir.exprs import const, require_int, to_int64

LANES = 8
"""Units of a block: a vector on AVX2, and a whole part of one on AVX-512. The layout of the weights
depends on it, so it is the same for all targets: an importer knows none.
"""
TASKS = 8
"""Rows are shared out in at most so many parts."""
ACCUMULATORS = 12
"""Vectors of sums held in registers at once: what is left of AVX2's 16 is for weights and elements
of the state.
"""
ALONE = 8
"""The same of a row by itself: a processor begins two multiply-adds a cycle, each of which waits
four for the one before of its sum. The weights of each sum are a stream, and with more streams than
an L1 cache has ways they drive each other out: they lie a multiple of 4 KiB apart for 128 units.
"""
SHARED_TILES = 6
"""Tiles of a task where the weights do not stay in the cache: every task reads all of them at every
step.
"""
CACHED = 256 << 10
"""Bytes of weights that are taken to stay in the cache."""


@dataclass(frozen=True)
class Integers:
    """The matmul of the state in integers: weights are int8 with one scale for each column, and
    each step quantizes the states of all rows to uint8 by their common range.

    zeros: weights have zero points.
    ended: the state of a row that has ended still counts for the range.
    dot: the processor's instruction for dot products, None for plain multiplications; lanes: of its
    accumulators; accumulators: how many panels' accumulators of one gate and row registers hold at
    once.
    """

    zeros: bool
    ended: bool
    dot: IntegerDot | None = None
    lanes: int = LANES
    accumulators: int = ACCUMULATORS

    @property
    def group(self) -> int:
        """Units of the state that are multiplied at once."""
        return 1 if self.dot is None else self.dot.group

    def groups(self, hidden: Any) -> Any:
        """Groups of a row of states."""
        return hidden if self.group == 1 else tirx.ceildiv(hidden, self.group)

    @property
    def panel(self) -> int:
        """Blocks whose weights lie side by side, so that a vector of accumulators is full."""
        return max(self.lanes // LANES, 1)

    @property
    def row(self) -> int:
        """Weights of a gate of a panel for one group of states."""
        return LANES * self.panel * self.group

    @property
    def takes_bytes(self) -> bool:
        """True if the instruction takes states as bytes, zero point included, so that the totals of
        the weights' columns have to be subtracted.
        """
        return self.dot is not None and self.dot.left in ("int8", "uint8")


@dataclass(frozen=True)
class Stored:
    """Weights of `bits` bits, dequantized as they are multiplied by the state in float32: each
    column has a scale for every `block` units of the state, all of them where it is None.

    zeros: weights have zero points, as many as scales; else those are 0, and 8 for 4 bits.
    """

    bits: int
    block: int | None = None
    zeros: bool = False

    @property
    def each(self) -> int:
        """Weights of a byte: those of neighbouring units of the state, the first in its lower
        half.
        """
        return 8 // self.bits

    def sizes(self, hidden: int) -> list[int]:
        """Units of the state in each block."""
        block = self.block or max(hidden, 1)
        return [min(block, hidden - start) for start in range(0, hidden, block)]


@dataclass(frozen=True)
class Recurrence:
    """A program of (x, weights, [scales], [totals], [zeros], [extra], [peepholes], h, [c],
    [lengths]) to (every, last, [memory]); G gates, K blocks of LANES units.

    x [S, B, K*G*LANES]: the input's part of the sums, biases included; weights [K, G, H, LANES];
    extra [K*LANES]: what a GRU that is linear before its reset adds before it; peepholes [3,
    K*LANES]; h, c [B, H]; lengths [B] int64. every [S, B, H], last and memory [B, H].

    With `integers`, weights are int8, with an instruction of groups of g units those of [K/P,
    H/g, G, P*LANES, g] as one axis, P blocks a panel; scales [K*G*LANES] float32; totals, of the
    weights' columns, and zeros, zero points, of the same shape int32.

    With `stored`, weights are int8 [K, G, H, LANES], those of 4 bits uint8 [K, G, H/2, LANES];
    scales and zeros [blocks of the state, K*G*LANES], float32 and int8.
    """

    cell: Cell
    hidden: Any
    blocks: Any
    backward: bool
    peepholes: bool
    masked: bool
    steps: Any = field(default_factory=lambda: tirx.Var("steps", "int64"))
    batch: Any = field(default_factory=lambda: tirx.Var("batch", "int64"))
    integers: Integers | None = None
    stored: Stored | None = None

    @property
    def two_states(self) -> bool:
        """True if cells keep a memory beside their output."""
        return self.cell.kind == "LSTM"

    @property
    def two_phases(self) -> bool:
        """True if a step sums twice: a GRU's candidate is of states that its reset has scaled."""
        return self.cell.kind == "GRU" and not self.cell.resets_sum

    @property
    def accumulators(self) -> int:
        """Accumulators of one gate and row, each of a panel, that registers hold at once."""
        return self.integers.accumulators if self.integers else ACCUMULATORS

    @property
    def fixed(self) -> bool:
        """True if the number of units is known."""
        return isinstance(self.hidden, tirx.IntImm)

    @property
    def width(self) -> Any:
        """Elements of a row of states in scratch memory."""
        return self.blocks * LANES

    @property
    def rows(self) -> int:
        """Rows of a tile, whose accumulators for two or three gates fill the registers."""
        if not self.fixed:
            # Each size of tile is code of its own, and loops without known ends compile slowly.
            return 1
        # Three gates of four rows, two of six or one of eight: 12 accumulators at most.
        if self.cell.resets_sum:
            return 4
        return 8 if self.cell.gates == 1 else 6

    @property
    def panel(self) -> int:
        """Blocks whose weights lie side by side."""
        return self.integers.panel if self.integers else 1

    @property
    def group_blocks(self) -> int:
        """Blocks of a group, whose sums for one row are in registers at once."""
        return ALONE // self.cell.gates * self.panel

    @property
    def cached(self) -> bool:
        """True if the weights stay in the cache, as they are taken to where units are not known."""
        hidden = self.hidden.value if self.fixed else 1
        bits = 8 if self.integers else self.stored.bits if self.stored else 32
        return self.cell.gates * hidden * hidden * bits // 8 <= CACHED

    @property
    def share(self) -> Any:
        """Rows of a task: whole tiles, and as few tasks as keep TASKS threads busy."""
        if self.integers:
            # One range for all rows.
            return tirx.max(self.batch, 1)
        # A task reads all weights at every step. If they do not stay in the cache, small tasks take
        # more of the memory's bandwidth than another thread makes up for.
        tiles = tirx.ceildiv(self.batch, self.rows)
        tasks = tirx.max(tirx.min(TASKS, tiles // (1 if self.cached else SHARED_TILES)), 1)
        return tirx.max(tirx.ceildiv(tiles, tasks), 1) * self.rows

    @property
    def flops(self) -> Any:
        """Additions and multiplications by the weights, over all steps."""
        return self.steps * self.batch * self.hidden * self.hidden * (2 * self.cell.gates)


@dataclass(frozen=True)
class Buffers:
    """The parameters of a program; None for those that the layer has not."""

    x: Any
    weights: Any
    scales: Any
    totals: Any
    zeros: Any
    extra: Any
    peepholes: Any
    states: tuple[Any, ...]
    lengths: Any
    every: Any
    finals: tuple[Any, ...]

    @property
    def inputs(self) -> list[Any]:
        """The buffers that there are, in the order of the program's parameters."""
        columns = [self.scales, self.totals, self.zeros]
        rest = [self.extra, self.peepholes, *self.states, self.lengths]
        buffers = [self.x, self.weights, *columns, *rest]
        return [buffer for buffer in buffers if buffer is not None]

    @property
    def results(self) -> list[Any]:
        """The buffers that the program writes, in the order of its parameters."""
        return [self.every, *self.finals]


def buffers_of(layer: Recurrence) -> Buffers:
    """The parameters of a layer's program, or of one direction of it."""
    gates, units = layer.cell.gates, layer.width
    # Weights are padded to whole blocks, states are not: they are inputs and results of the model.
    state, kinds = [layer.batch, layer.hidden], 1 + layer.two_states
    integers, columns, quantized = layer.integers, units * gates, layer.integers or layer.stored
    grid = [columns]
    if layer.stored:
        grid = [const(len(layer.stored.sizes(require_int(layer.hidden)))), columns]
    return Buffers(
        x=_buffer("x", [layer.steps, layer.batch, columns]),
        weights=_weights(layer),
        scales=_buffer("scales", grid) if quantized else None,
        totals=_buffer("totals", [columns], "int32") if integers and integers.takes_bytes else None,
        zeros=_buffer("zeros", grid, "int32" if integers else "int8")
        if quantized and quantized.zeros
        else None,
        extra=_buffer("extra", [units]) if layer.cell.resets_sum else None,
        peepholes=_buffer("peepholes", [3, units]) if layer.peepholes else None,
        states=tuple(_buffer(name, state) for name in ("h", "c")[:kinds]),
        lengths=_buffer("lengths", [layer.batch], "int64") if layer.masked else None,
        every=_buffer("every", [layer.steps, layer.batch, layer.hidden]),
        finals=tuple(_buffer(name, state) for name in ("last", "memory")[:kinds]),
    )


def _weights(layer: Recurrence) -> Any:
    gates, integers = layer.cell.gates, layer.integers
    if layer.stored:
        rows = -(-require_int(layer.hidden) // layer.stored.each)
        dtype = "int8" if layer.stored.bits == 8 else "uint8"
        return _buffer("weights", [layer.blocks, gates, rows, LANES], dtype)
    if integers is None:
        return _buffer("weights", [layer.blocks, gates, layer.hidden, LANES])
    if integers.dot is None:
        return _buffer("weights", [layer.blocks, gates, layer.hidden, LANES], "int8")
    panels, groups = tirx.ceildiv(layer.blocks, integers.panel), integers.groups(layer.hidden)
    # Flat, since TVM gathers the bytes of a vector in a buffer of several axes one by one.
    return _buffer("weights", [panels * gates * groups * integers.row], "int8")


def _buffer(name: str, shape: Sequence[Any], dtype: str = "float32") -> Any:
    return tirx.decl_buffer(to_int64(shape), dtype, name=name)
