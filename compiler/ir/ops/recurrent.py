"""Recurrent layers (LSTM, GRU, RNN): the input's product for all steps at once, then one program that walks time.

Equations and gate orders are those of the ONNX operators: iofc (LSTM), zrh (GRU).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, s_tir, tirx
from tvm.script import tirx as T

from compiler.errors import ImportFailed
from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent
from compiler.ir.ops import broadcast, layout, linear
from compiler.ir.ops import elementwise as ew
from compiler.ir.values import Known, Tensor, Value

Activation = Callable[[Any], Any]
LENGTH = 1 << 40
"""A sequence length no input reaches: the step count limits instead."""


@dataclass(frozen=True)
class Cell:
    """What a layer computes at each step; `activations` are f, g, h in ONNX's order, `clip` bounds their arguments."""

    kind: str
    activations: tuple[Activation, ...]
    clip: float | None = None
    input_forget: bool = False
    linear_before_reset: bool = False

    @property
    def gates(self) -> int:
        """Gates of a cell: rows of W and R in units of the hidden size."""
        return {"LSTM": 4, "GRU": 3, "RNN": 1}[self.kind]

    def act(self, index: int, value: Any) -> Any:
        """Activation `index` of the clipped value."""
        if self.clip is not None:
            value = tirx.max(tirx.min(value, T.float32(self.clip)), T.float32(-self.clip))
        return self.activations[index](value)


def activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """An activation by ONNX's name, any case; raises ImportFailed for one that the operator does not define."""
    f = T.float32
    a = (
        {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0, "scaledtanh": 1.0, "affine": 1.0}.get(name.lower(), 0.0)
        if alpha is None
        else alpha
    )
    c = {"hardsigmoid": 0.5, "scaledtanh": 1.0}.get(name.lower(), 0.0) if beta is None else beta
    table: dict[str, Activation] = {
        "sigmoid": tirx.sigmoid,
        "tanh": tirx.tanh,
        "relu": lambda v: tirx.max(v, f(0)),
        "affine": lambda v: v * f(a) + f(c),
        "leakyrelu": lambda v: tirx.Select(v < f(0), v * f(a), v),
        "thresholdedrelu": lambda v: tirx.Select(v >= f(a), v, f(0)),
        "scaledtanh": lambda v: tirx.tanh(v * f(c)) * f(a),
        "hardsigmoid": lambda v: tirx.min(tirx.max(v * f(a) + f(c), f(0)), f(1)),
        "elu": lambda v: tirx.Select(v >= f(0), v, (tirx.exp(v) - f(1)) * f(a)),
        "softsign": lambda v: v / (f(1) + tirx.abs(v)),
        "softplus": lambda v: tirx.log(f(1) + tirx.exp(v)),
    }
    if name.lower() not in table:
        raise ImportFailed(f"the activation {name!r} is not defined for recurrent layers", reason="attribute")
    return table[name.lower()]


@dataclass(frozen=True)
class Direction:
    """One direction's parameters: w [G*H, I], r [G*H, H], bias [2*G*H] or None, peepholes [3*H] or None, states [B, H]."""

    w: Value
    r: Value
    bias: Value | None
    peepholes: Value | None
    h: Value | None
    c: Value | None
    backward: bool


def run(b: Builder, cell: Cell, x: Value, lengths: Value | None, d: Direction) -> tuple[Tensor, Tensor, Tensor | None]:
    """One direction over x [S, B, I]: all hidden states [S, B, H], the last hidden [B, H] and cell state; float32 inside."""
    steps, batch = x.shape[0], x.shape[1]
    hidden = d.r.shape[1]
    wide = b.facts.simplify(ex.mul(hidden, cell.gates))
    x, w, r = (ew.cast(b, value, "float32") for value in (x, d.w, d.r))
    given = b.adopt(b.tensor(linear.matmul(b, x, layout.transpose(b, w, [1, 0]))).expr, [steps, batch, wide])
    zeros = Known(np.zeros([1, 1], np.float32), "float32")
    bias = (
        ew.cast(b, d.bias, "float32")
        if d.bias is not None
        else broadcast.expand(b, Known(np.zeros([1], np.float32), "float32"), [ex.mul(wide, 2)])
    )
    peepholes = (
        ew.cast(b, d.peepholes, "float32")
        if d.peepholes is not None
        else broadcast.expand(b, Known(np.zeros([1], np.float32), "float32"), [ex.mul(hidden, 3)])
    )
    states = [
        broadcast.expand(b, zeros, [batch, hidden]) if v is None else b.adopt(b.tensor(ew.cast(b, v, "float32")).expr, [batch, hidden])
        for v in (d.h, d.c)
    ]
    limits = broadcast.expand(b, Known.of([LENGTH]), [batch]) if lengths is None else ew.cast(b, lengths, "int64")
    inputs = [given, layout.transpose(b, r, [1, 0]), bias, peepholes, *states, limits]
    program = _PROGRAMS[cell.kind](cell, _dim(hidden, "hidden"), d.backward)
    shapes = [(steps, batch, hidden), (batch, hidden), (batch, hidden), (batch, wide)]
    tensors = [b.adopt(b.tensor(v).expr, shape) for v, shape in zip(inputs, _shapes(steps, batch, hidden, wide), strict=True)]
    call = relax.call_tir(
        b.bb.add_func(_rooted(program), cell.kind.lower()),
        [t.expr for t in tensors],
        [relax.TensorType([ex.prim(e) for e in shape], "float32") for shape in shapes],
    )
    every, last, memory, _ = b.emit_tuple(call)
    return every, last, memory if cell.kind == "LSTM" else None


def _rooted(program: tirx.PrimFunc) -> tirx.PrimFunc:
    """The program as the one block that TVM's analyses expect of every function, marked as needing no schedule."""
    root = s_tir.SBlockRealize([], tirx.IntImm("bool", 1), s_tir.SBlock([], [], [], "root", program.body))
    return program.with_body(root).without_attr("global_symbol").with_attr("tirx.is_scheduled", True)


def _shapes(steps: Extent, batch: Extent, hidden: Extent, wide: Extent) -> list[Sequence[Extent]]:
    return [(steps, batch, wide), (hidden, wide), (ex.mul(wide, 2),), (ex.mul(hidden, 3),), (batch, hidden), (batch, hidden), (batch,)]


def _dim(extent: Extent, name: str) -> Any:
    return extent if isinstance(extent, int) else tirx.Var(name, "int64")


def _lstm(cell: Cell, H: Any, backward: bool) -> tirx.PrimFunc:
    S, B = (tirx.Var(name, "int64") for name in ("steps", "batch"))
    act, coupled = cell.act, cell.input_forget

    @T.prim_func(private=True, s_tir=True)
    def lstm(
        X: T.Buffer((S, B, H * 4), "float32"),
        R: T.Buffer((H, H * 4), "float32"),
        bias: T.Buffer((H * 8,), "float32"),
        P: T.Buffer((H * 3,), "float32"),
        h0: T.Buffer((B, H), "float32"),
        c0: T.Buffer((B, H), "float32"),
        length: T.Buffer((B,), "int64"),
        Y: T.Buffer((S, B, H), "float32"),
        h: T.Buffer((B, H), "float32"),
        c: T.Buffer((B, H), "float32"),
        G: T.Buffer((B, H * 4), "float32"),
    ):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8})
        for n in range(B):
            for j in range(H):
                h[n, j] = h0[n, j]
                c[n, j] = c0[n, j]
        for t in range(S):
            for n in range(B):
                for j in range(H):
                    Y[t, n, j] = T.float32(0)
        for s in range(S):
            for n in range(B):
                if s < length[n]:
                    for j in range(H * 4):
                        G[n, j] = X[T.min(length[n], S) - 1 - s if backward else s, n, j] + bias[j] + bias[H * 4 + j]
                    for k in range(H):
                        for j in range(H * 4):
                            G[n, j] = G[n, j] + h[n, k] * R[k, j]
                    for j in range(H):
                        G[n, j] = act(0, G[n, j] + P[j] * c[n, j])
                        G[n, H * 2 + j] = T.float32(1) - G[n, j] if coupled else act(0, G[n, H * 2 + j] + P[H * 2 + j] * c[n, j])
                        c[n, j] = G[n, H * 2 + j] * c[n, j] + G[n, j] * act(1, G[n, H * 3 + j])
                        h[n, j] = act(0, G[n, H + j] + P[H + j] * c[n, j]) * act(2, c[n, j])
                        Y[T.min(length[n], S) - 1 - s if backward else s, n, j] = h[n, j]

    return lstm


def _gru(cell: Cell, H: Any, backward: bool) -> tirx.PrimFunc:
    S, B = (tirx.Var(name, "int64") for name in ("steps", "batch"))
    act, before = cell.act, cell.linear_before_reset

    @T.prim_func(private=True, s_tir=True)
    def gru(
        X: T.Buffer((S, B, H * 3), "float32"),
        R: T.Buffer((H, H * 3), "float32"),
        bias: T.Buffer((H * 6,), "float32"),
        P: T.Buffer((H * 3,), "float32"),
        h0: T.Buffer((B, H), "float32"),
        c0: T.Buffer((B, H), "float32"),
        length: T.Buffer((B,), "int64"),
        Y: T.Buffer((S, B, H), "float32"),
        h: T.Buffer((B, H), "float32"),
        q: T.Buffer((B, H), "float32"),
        G: T.Buffer((B, H * 3), "float32"),
    ):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8})
        for n in range(B):
            for j in range(H):
                h[n, j] = h0[n, j]
        for t in range(S):
            for n in range(B):
                for j in range(H):
                    Y[t, n, j] = T.float32(0)
        for s in range(S):
            for n in range(B):
                if s < length[n]:
                    for j in range(H * 2):
                        G[n, j] = X[T.min(length[n], S) - 1 - s if backward else s, n, j] + bias[j] + bias[H * 3 + j]
                    for k in range(H):
                        for j in range(H * 2):
                            G[n, j] = G[n, j] + h[n, k] * R[k, j]
                    for j in range(H * 2):
                        G[n, j] = act(0, G[n, j])
                    for j in range(H):
                        q[n, j] = h[n, j] if before else G[n, H + j] * h[n, j]
                        G[n, H * 2 + j] = bias[H * 5 + j]
                    for k in range(H):
                        for j in range(H):
                            G[n, H * 2 + j] = G[n, H * 2 + j] + q[n, k] * R[k, H * 2 + j]
                    for j in range(H):
                        G[n, H * 2 + j] = act(
                            1,
                            X[T.min(length[n], S) - 1 - s if backward else s, n, H * 2 + j]
                            + bias[H * 2 + j]
                            + (G[n, H + j] * G[n, H * 2 + j] if before else G[n, H * 2 + j]),
                        )
                        h[n, j] = (T.float32(1) - G[n, j]) * G[n, H * 2 + j] + G[n, j] * h[n, j]
                        Y[T.min(length[n], S) - 1 - s if backward else s, n, j] = h[n, j]

    return gru


def _rnn(cell: Cell, H: Any, backward: bool) -> tirx.PrimFunc:
    S, B = (tirx.Var(name, "int64") for name in ("steps", "batch"))
    act = cell.act

    @T.prim_func(private=True, s_tir=True)
    def rnn(
        X: T.Buffer((S, B, H), "float32"),
        R: T.Buffer((H, H), "float32"),
        bias: T.Buffer((H * 2,), "float32"),
        P: T.Buffer((H * 3,), "float32"),
        h0: T.Buffer((B, H), "float32"),
        c0: T.Buffer((B, H), "float32"),
        length: T.Buffer((B,), "int64"),
        Y: T.Buffer((S, B, H), "float32"),
        h: T.Buffer((B, H), "float32"),
        c: T.Buffer((B, H), "float32"),
        G: T.Buffer((B, H), "float32"),
    ):
        T.func_attr({"tirx.noalias": True, "op_pattern": 8})
        for n in range(B):
            for j in range(H):
                h[n, j] = h0[n, j]
        for t in range(S):
            for n in range(B):
                for j in range(H):
                    Y[t, n, j] = T.float32(0)
        for s in range(S):
            for n in range(B):
                if s < length[n]:
                    for j in range(H):
                        G[n, j] = X[T.min(length[n], S) - 1 - s if backward else s, n, j] + bias[j] + bias[H + j]
                    for k in range(H):
                        for j in range(H):
                            G[n, j] = G[n, j] + h[n, k] * R[k, j]
                    for j in range(H):
                        h[n, j] = act(0, G[n, j])
                        Y[T.min(length[n], S) - 1 - s if backward else s, n, j] = h[n, j]

    return rnn


_PROGRAMS: dict[str, Callable[[Cell, Any, bool], tirx.PrimFunc]] = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
