"""Recurrent layers (LSTM, GRU, RNN): the input's product for all steps at once, then one program
that walks time.

Equations and gate orders are those of the ONNX operators: iofc (LSTM), zrh (GRU).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tvm import relax, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.recurrences.cells import Cell
from compiler.recurrences.layer import LANES, Integers, Recurrence, Stored
from compiler.recurrences.recurrent import emit_recurrence


class Quantized(Protocol):
    """Quantized w or r of a direction (see `compiler.ir.ops.quantized.recurrent`)."""

    @property
    def shape(self) -> tuple[Extent, ...]:
        """[G*H, C]."""

    def form(self, ended: bool) -> Integers | Stored:
        """The program's form of r; ended: see `run`."""

    def project(self, b: Builder, blocks: Blocks, x: Value, lengths: Value | None) -> Value:
        """The input's part of the sums, x [S, B, I] times w, without biases."""

    def arguments(self, b: Builder, blocks: Blocks) -> list[tuple[Value, Sequence[Extent]]]:
        """The program's inputs for r, each with its shape: weights, the scales of their columns,
        and their zero points where they have any.
        """


@dataclass(frozen=True)
class Direction:
    """One direction of a layer: its cell, w [G*H, I], r [G*H, H], bias [2*G*H] or None, peepholes
    [3*H] or None, states [B, H].

    w and r that are quantized say themselves what becomes of the inputs and states that they
    multiply.
    """

    cell: Cell
    w: Value | Quantized
    r: Value | Quantized
    bias: Value | None
    peepholes: Value | None
    h: Value | None
    c: Value | None
    backward: bool


@dataclass(frozen=True)
class Blocks:
    """Gates of `hidden` units as `count` blocks of LANES units, all gates of a block side
    by side.
    """

    builder: Builder
    gates: int
    hidden: Extent
    count: Extent

    @classmethod
    def of(cls, b: Builder, gates: int, hidden: Extent) -> Blocks:
        """Blocks for all units."""
        return cls(b, gates, hidden, b.symbol(ex.ceildiv(hidden, LANES), "blocks"))

    @property
    def units(self) -> Extent:
        """Units with those that fill up the last block."""
        return ex.mul(self.count, LANES)

    def pad(self, value: Value) -> Value:
        """[..., H] with zeros up to whole blocks."""
        b, lead = self.builder, value.shape[:-1]
        missing = b.facts.simplify(ex.sub(self.units, self.hidden))
        if missing == 0:
            return value
        if isinstance(value, Known) and isinstance(missing, int):
            rest = [(0, 0)] * len(lead)
            return Known(np.pad(value.data, [*rest, (0, missing)]), value.dtype)
        zero = np.zeros([1] * len(value.shape), np.dtype(value.dtype))
        zeros = broadcast.expand(b, Known(zero, value.dtype), [*lead, missing])
        joined = layout.concat(b, [value, zeros], -1)
        return (
            joined
            if isinstance(joined, Known)
            else b.adopt(b.tensor(joined).expr, [*lead, self.units])
        )

    def pack(self, value: Value) -> Value:
        """[G * H, C] as [K, G, C, LANES]."""
        b, columns = self.builder, value.shape[1]
        gates = layout.transpose(
            b, layout.reshape(b, value, [self.gates, self.hidden, columns]), [2, 0, 1]
        )
        blocks = layout.reshape(b, self.pad(gates), [columns, self.gates, self.count, LANES])
        return layout.transpose(b, blocks, [2, 1, 0, 3])

    def flat(self, value: Value) -> Value:
        """[G * H, C] as [C, K * G * LANES]."""
        b, columns = self.builder, value.shape[1]
        moved = layout.transpose(b, self.pack(value), [2, 0, 1, 3])
        return layout.reshape(b, moved, [columns, ex.mul(self.units, self.gates)])

    def columns(self, value: Value) -> Value:
        """One number or [G * H] as [K * G * LANES]."""
        b, rows = self.builder, ex.mul(self.hidden, self.gates)
        if len(value.shape):
            one_each = value
        elif isinstance(value, Known) and isinstance(rows, int):
            one_each = Known(np.broadcast_to(value.data, [rows]), value.dtype)
        else:
            one_each = broadcast.expand(b, value, [rows])
        return layout.squeeze(b, self.flat(layout.unsqueeze(b, one_each, [1])), [0])


def run(
    b: Builder,
    x: Value,
    lengths: Value | None,
    directions: Sequence[Direction],
    ended: bool = False,
) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """One direction or two over x [S, B, I]: of each all hidden states [S, B, H], the last hidden
    [B, H] and cell state; float32 inside. lengths: integers [B] from 0 to S, the steps of each row.

    ended: the states of rows that have ended count for the range by which states are quantized.
    """
    first, steps, batch = directions[0].cell, *x.shape[:2]
    if lengths is not None:
        indexing.check_lengths(b, lengths, steps)
    hidden = b.facts.simplify(directions[0].r.shape[1])
    blocks = Blocks.of(b, first.gates, hidden)
    extents = _own(hidden, "hidden"), _own(blocks.count, "blocks")
    clock = {name: tirx.Var(name, "int64") for name in ("steps", "batch")}
    layers = [
        Recurrence(
            d.cell,
            *extents,
            d.backward,
            d.peepholes is not None,
            lengths is not None,
            **clock,
            **_forms(d, ended),
        )
        for d in directions
    ]
    inputs = [item for d in directions for item in _inputs(b, blocks, x, lengths, d)]
    kinds = 1 + layers[0].two_states
    results = [(steps, batch, hidden), *[(batch, hidden)] * kinds] * len(layers)
    call = relax.call_tir(
        b.bb.add_func(emit_recurrence(*layers), first.kind.lower()),
        [b.adopt(b.tensor(value).expr, shape).expr for value, shape in inputs],
        [relax.TensorType([ex.prim(e) for e in shape], "float32") for shape in results],
    )
    values = iter(b.emit_tuple(call))
    return [(next(values), next(values), next(values) if kinds == 2 else None) for _ in layers]


def _forms(d: Direction, ended: bool) -> dict[str, Any]:
    """The part of a program's description that says how r is stored."""
    if isinstance(d.r, Value):
        return {}
    form = d.r.form(ended)
    return {"integers" if isinstance(form, Integers) else "stored": form}


def _inputs(
    b: Builder, blocks: Blocks, x: Value, lengths: Value | None, d: Direction
) -> list[tuple[Value, Sequence[Extent]]]:
    """The program's inputs of one direction, each with its shape."""
    (steps, batch), hidden, cell = x.shape[:2], blocks.hidden, d.cell
    x = ew.cast(b, x, "float32")
    if isinstance(d.w, Value):
        projected = linear.matmul(b, x, blocks.flat(ew.cast(b, d.w, "float32")))
    else:
        projected = d.w.project(b, blocks, x, lengths)
    projected, extra = _add_biases(b, cell, blocks, projected, d.bias)
    rows, weights = ex.mul(blocks.units, cell.gates), [blocks.count, cell.gates, hidden, LANES]
    inputs: list[tuple[Value, Sequence[Extent]]] = [(projected, [steps, batch, rows])]
    if isinstance(d.r, Value):
        inputs.append((blocks.pack(ew.cast(b, d.r, "float32")), weights))
    else:
        inputs += d.r.arguments(b, blocks)
    if cell.resets_sum:
        inputs.append((extra, [blocks.units]))
    if d.peepholes is not None:
        peepholes = layout.reshape(b, ew.cast(b, d.peepholes, "float32"), [3, hidden])
        inputs.append((blocks.pad(peepholes), [3, blocks.units]))
    states = (d.h, d.c) if cell.kind == "LSTM" else (d.h,)
    inputs += [(_state(b, value, batch, hidden), [batch, hidden]) for value in states]
    if lengths is not None:
        inputs.append((ew.cast(b, lengths, "int64"), [batch]))
    return inputs


def _add_biases(
    b: Builder, cell: Cell, blocks: Blocks, projected: Value, bias: Value | None
) -> tuple[Value, Value]:
    """The input's part of the sums with all biases in it but the one that a GRU linear before its
    reset adds there, which comes second.
    """
    hidden = blocks.hidden
    none = broadcast.expand(b, Known(np.zeros([1], np.float32), "float32"), [blocks.units])
    if bias is None:
        return projected, none
    both = layout.reshape(b, ew.cast(b, bias, "float32"), [2, ex.mul(hidden, cell.gates)])
    of_input, of_state = (indexing.item(b, both, 0, index) for index in (0, 1))
    if cell.resets_sum:
        gates = layout.split(b, of_state, 0, [ex.mul(hidden, 2), hidden])
        zeros = broadcast.expand(b, Known(np.zeros([1], np.float32), "float32"), [hidden])
        none, of_state = blocks.pad(gates[1]), layout.concat(b, [gates[0], zeros], 0)
    total = layout.unsqueeze(b, ew.add(b, of_input, of_state), [1])
    return ew.add(b, projected, blocks.flat(total)), none


def _state(b: Builder, value: Value | None, batch: Extent, hidden: Extent) -> Value:
    if value is None:
        return broadcast.expand(b, Known(np.zeros([1, 1], np.float32), "float32"), [batch, hidden])
    return ew.cast(b, value, "float32")


def _own(extent: Extent, name: str) -> Any:
    """An extent as the program knows it: a constant, or a dim of its own."""
    return tirx.IntImm("int64", extent) if isinstance(extent, int) else tirx.Var(name, "int64")
