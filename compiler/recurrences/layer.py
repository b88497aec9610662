"""A recurrent layer as its program takes it: the cell, extents, parameters and how they are laid
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from compiler.recurrences.cells import Cell
from compiler.tir.exprs import to_int64

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
        """True if cells keep a memory beside their output."""
        return self.cell.kind == "LSTM"

    @property
    def two_phases(self) -> bool:
        """True if a step sums twice: a GRU's candidate is of states that its reset has scaled."""
        return self.cell.kind == "GRU" and not self.cell.resets_sum

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
    def group_blocks(self) -> int:
        """Blocks of a group, whose sums for one row are in registers at once."""
        return ALONE // self.cell.gates

    @property
    def cached(self) -> bool:
        """True if the weights stay in the cache, as they are taken to where units are not known."""
        hidden = self.hidden.value if self.fixed else 1
        return 4 * self.cell.gates * hidden * hidden <= CACHED

    @property
    def share(self) -> Any:
        """Rows of a task: whole tiles, and as few tasks as keep TASKS threads busy."""
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
    extra: Any
    peepholes: Any
    states: tuple[Any, ...]
    lengths: Any
    every: Any
    finals: tuple[Any, ...]

    @property
    def inputs(self) -> list[Any]:
        """The buffers that there are, in the order of the program's parameters."""
        buffers = [self.x, self.weights, self.extra, self.peepholes, *self.states, self.lengths]
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
    return Buffers(
        x=_buffer("x", [layer.steps, layer.batch, units * gates]),
        weights=_buffer("weights", [layer.blocks, gates, layer.hidden, LANES]),
        extra=_buffer("extra", [units]) if layer.cell.resets_sum else None,
        peepholes=_buffer("peepholes", [3, units]) if layer.peepholes else None,
        states=tuple(_buffer(name, state) for name in ("h", "c")[:kinds]),
        lengths=_buffer("lengths", [layer.batch], "int64") if layer.masked else None,
        every=_buffer("every", [layer.steps, layer.batch, layer.hidden]),
        finals=tuple(_buffer(name, state) for name in ("last", "memory")[:kinds]),
    )


def _buffer(name: str, shape: Sequence[Any], dtype: str = "float32") -> Any:
    return tirx.decl_buffer(to_int64(shape), dtype, name=name)
