"""LSTM, GRU and RNN by numpy for onnx's evaluator, whose own ones read neither activations, clip,
input_forget nor sequence_lens.

Written from the equations of the operators' documentation, in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]
Activation = Callable[[Array], Array]

_ALPHA = {
    "leakyrelu": 0.01,
    "thresholdedrelu": 1.0,
    "hardsigmoid": 0.2,
    "elu": 1.0,
    "scaledtanh": 1.0,
    "affine": 1.0,
}
_BETA = {"hardsigmoid": 0.5, "scaledtanh": 1.0, "affine": 0.0}
"""Activations that take these numbers, with their defaults."""


def activation_of(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    """The activation of that name, in any case, which takes the next of the numbers that it has use
    for; raises ValueError for an unknown one.
    """
    key = name.lower()
    a = next(alphas, _ALPHA[key]) if key in _ALPHA else 0.0
    b = next(betas, _BETA[key]) if key in _BETA else 0.0
    table: dict[str, Activation] = {
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
        "affine": lambda x: a * x + b,
        "leakyrelu": lambda x: np.where(x < 0, a * x, x),
        "thresholdedrelu": lambda x: np.where(x >= a, x, 0),
        "scaledtanh": lambda x: a * np.tanh(b * x),
        "hardsigmoid": lambda x: np.clip(a * x + b, 0, 1),
        "elu": lambda x: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "softplus": lambda x: np.logaddexp(x, 0),
    }
    if key not in table:
        raise ValueError(f"the activation {name!r} is not defined for recurrent operators")
    return table[key]


@dataclass(frozen=True)
class Cell:
    """One direction's activations and options; weights w [gates*hidden, input], r [gates*hidden,
    hidden], bias [2*gates*hidden], peepholes [3*hidden].
    """

    activations: Sequence[Activation]
    clip: float | None
    w: Array
    r: Array
    bias: Array
    peepholes: Array
    input_forget: bool = False
    linear_before_reset: bool = False

    def act(self, index: int, x: Array) -> Array:
        """Activation `index` of x, which is clipped before."""
        return self.activations[index](x if self.clip is None else x.clip(-self.clip, self.clip))

    def terms(self, x: Array, h: Array, first: int, last: int) -> tuple[Array, Array]:
        """The gates from first up to last: the parts of x and of the state, with their biases."""
        size = h.shape[-1]
        rows = slice(first * size, last * size)
        own, state = np.split(self.bias, 2)
        return x @ self.w[rows].T + own[rows], h @ self.r[rows].T + state[rows]

    def total(self, x: Array, h: Array, first: int, last: int) -> Array:
        """Both parts added up."""
        own, state = self.terms(x, h, first, last)
        return np.asarray(own + state)

    def rnn(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """One step: the next state, and c as it is."""
        return self.act(0, self.total(x, h, 0, 1)), c

    def gru(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """One step: gates z, r, h."""
        z, r = (self.act(0, self.total(x, h, gate, gate + 1)) for gate in (0, 1))
        if self.linear_before_reset:
            own, state = self.terms(x, h, 2, 3)
            new = self.act(1, own + r * state)
        else:
            new = self.act(1, self.total(x, r * h, 2, 3))
        return (1 - z) * new + z * h, c

    def lstm(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """One step: gates i, o, f, c."""
        i, o, f, new = np.split(self.total(x, h, 0, 4), 4, axis=-1)
        to_i, to_o, to_f = np.split(self.peepholes, 3)
        i = self.act(0, i + to_i * c)
        f = 1 - i if self.input_forget else self.act(0, f + to_f * c)
        c = f * c + i * self.act(1, new)
        return self.act(0, o + to_o * c) * self.activations[2](c), c


def walk(
    step: Callable[[Array, Array, Array], tuple[Array, Array]],
    x: Array,
    lengths: Array,
    h: Array,
    c: Array,
    backward: bool,
    see: Callable[[Array, Array], Array] = lambda h, counted: h,
) -> tuple[Array, Array, Array]:
    """All states [T, N, H], zero behind a row's length, and the last ones [N, H]; x [T, N, I].

    see: what a step sees of the states, given which rows had a step before it. Raises ValueError
    for a row of no steps, whose results the operators do not define.
    """
    if (lengths < 1).any():
        raise ValueError("what a row of no steps gives is not specified")
    every = np.zeros((*x.shape[:2], h.shape[-1]))
    for number in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > number)
        steps = lengths[rows] - 1 - number if backward else np.full(len(rows), number)
        h[rows], c[rows] = step(x[steps, rows], see(h, lengths >= number)[rows], c[rows])
        every[steps, rows] = h[rows]
    return every, h, c


class _Recurrent(OpRun):  # type: ignore[misc]
    """kind: the cell's method; gates: rows of weights in units of the hidden size; defaults: of one
    direction's activations.
    """

    op_domain = ""
    kind = ""
    gates = 0
    defaults: tuple[str, ...] = ()

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array, ...]:
        arguments: list[Array | None] = [*inputs, *[None] * (8 - len(inputs))]
        x, w, r = (np.asarray(part) for part in arguments[:3])
        batch_first, dtype = bool(attributes.get("layout")), x.dtype
        x = np.swapaxes(x, 0, 1) if batch_first else x
        directions, batch, hidden = len(w), x.shape[1], r.shape[-1]
        bias = _wide(arguments[3], (directions, 2 * self.gates * hidden))
        peepholes = _wide(arguments[7], (directions, 3 * hidden))
        h, c = (
            _wide(
                np.swapaxes(state, 0, 1) if batch_first and state is not None else state,
                (directions, batch, hidden),
            )
            for state in arguments[5:7]
        )
        lengths = np.full(batch, len(x)) if arguments[4] is None else arguments[4]
        backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
        ran = []
        for d, back in enumerate(backward[attributes.get("direction") or "forward"]):
            parts = (w[d].astype(np.float64), r[d].astype(np.float64), bias[d], peepholes[d])
            cell = self._cell(attributes, d, parts)
            step = getattr(cell, self.kind)
            seen = self._see_inputs(x.astype(np.float64), lengths)
            ran.append(walk(step, seen, lengths, h[d], c[d], back, self._see_states))
        every = np.stack([each[0] for each in ran], 1)
        last = [np.stack([each[index] for each in ran]) for index in (1, 2)]
        if batch_first:
            every, last = every.transpose(2, 0, 1, 3), [part.swapaxes(0, 1) for part in last]
        return tuple(part.astype(dtype) for part in (every, *last))[: len(self.onnx_node.output)]

    def _see_inputs(self, x: Array, lengths: Array) -> Array:
        return x

    def _see_states(self, h: Array, counted: Array) -> Array:
        return h

    def _cell(
        self, attributes: Any, direction: int, parts: tuple[Array, Array, Array, Array]
    ) -> Cell:
        names = attributes.get("activations") or self.defaults * 2
        alphas = iter(attributes.get("activation_alpha") or ())
        betas = iter(attributes.get("activation_beta") or ())
        chosen = [activation_of(name, alphas, betas) for name in names]
        each = len(self.defaults)
        return Cell(
            chosen[direction * each : (direction + 1) * each],
            attributes.get("clip"),
            *parts,
            bool(attributes.get("input_forget")),
            bool(attributes.get("linear_before_reset")),
        )


def _wide(value: Array | None, shape: tuple[int, ...]) -> Array:
    """A copy in float64, zeros where there is none."""
    return np.zeros(shape) if value is None else np.array(value, np.float64)


class LSTM(_Recurrent):
    """Long short-term memory."""

    kind, gates, defaults = "lstm", 4, ("Sigmoid", "Tanh", "Tanh")


class DynamicQuantizeLSTM(LSTM):
    """An LSTM of the dequantized weights, [directions, inputs, 4 * hidden], whose inputs and states
    are quantized as they are multiplied: all inputs by one range, the states of all rows by one
    range at each step, as ONNX Runtime computes it on one thread.
    """

    op_domain = "com.microsoft"

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array, ...]:
        arguments: list[Array | None] = [*inputs, *[None] * (12 - len(inputs))]
        for index, scale in ((1, 8), (2, 10)):
            weight, zero = np.asarray(arguments[index]), arguments[scale + 1]
            centred = weight - (0.0 if zero is None else _beside(np.asarray(zero, np.float64)))
            arguments[index] = (centred * _beside(np.asarray(arguments[scale]))).swapaxes(1, 2)
        return super()._run(*arguments[:8], **attributes)

    def _see_inputs(self, x: Array, lengths: Array) -> Array:
        return _quantize(x, x[: int(lengths.max(initial=0))])

    def _see_states(self, h: Array, counted: Array) -> Array:
        # States of rows that have ended are cleared where all states are written.
        return _quantize(h, h[counted] if self.onnx_node.output[0] else h)


def _quantize(values: Array, counted: Array) -> Array:
    """Values as uint8 by the finest scale that holds the counted ones and 0, dequantized."""
    low, high = min(counted.min(initial=0), 0), max(counted.max(initial=0), 0)
    scale = (high - low) / 255 or 1.0
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.asarray((np.clip(np.rint(values / scale) + zero, 0, 255) - zero) * scale)


def _beside(values: Array) -> Array:
    """A number or a row of numbers a direction, against [directions, inputs, columns]."""
    return values.reshape(len(values), 1, -1)


class GRU(_Recurrent):
    """Gated recurrent unit."""

    kind, gates, defaults = "gru", 3, ("Sigmoid", "Tanh")


class RNN(_Recurrent):
    """Elman network."""

    kind, gates, defaults = "rnn", 1, ("Tanh",)
