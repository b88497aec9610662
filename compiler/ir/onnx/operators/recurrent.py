"""ONNX LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.nn.recurrent import Direction, Quantized, run
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.quantized.recurrent import DequantizedWeights, QuantizedWeights
from compiler.ir.ops.shape import indexing, layout
from compiler.recurrences.cells import Cell, activation

DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
TAKES_ALPHA = frozenset(
    {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
)
TAKES_BETA = frozenset({"affine", "scaledtanh", "hardsigmoid"})


@op("LSTM", since=7)
def lstm(b: Builder, node: Node) -> list[Value | None]:
    """Long short-term memory."""
    return _layer(b, node, "LSTM")


@op("GRU", since=7)
def gru(b: Builder, node: Node) -> list[Value | None]:
    """Gated recurrent unit."""
    return _layer(b, node, "GRU")


@op("RNN", since=7)
def rnn(b: Builder, node: Node) -> list[Value | None]:
    """Elman network."""
    return _layer(b, node, "RNN")


def quantized_lstm(
    b: Builder, node: Node, parameters: Sequence[QuantizedWeights]
) -> list[Value | None]:
    """Long short-term memory by quantized w and r [directions, 4 * hidden, inputs], whose scales
    and zero points are one number for each direction or one for each row of it.
    """
    return _layer(b, node, "LSTM", parameters)


def _layer(
    b: Builder, node: Node, kind: str, quantized: Sequence[QuantizedWeights] = ()
) -> list[Value | None]:
    direction = node.attr("direction", "forward")
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(
        direction
    )
    if backward is None:
        node.fail(
            f"the direction {direction!r} is not one of forward, reverse, bidirectional",
            reason="attribute",
        )
    batch_first = bool(node.attr("layout", 0))
    x = node.value(0)
    if len(x.shape) != 3:
        node.fail(f"{kind} takes an input of 3 axes, this one has {len(x.shape)}", reason="shape")
    dtype = x.dtype
    x = layout.transpose(b, x, [1, 0, 2]) if batch_first else x
    # What a row of no steps gives is not specified: ONNX Runtime gives zeros.
    limit_values(b, node, 4, 1, x.shape[0])
    cells = _cells(node, kind, len(backward))
    directions = [
        _direction(b, node, index, cell, back, batch_first, quantized)
        for index, (cell, back) in enumerate(zip(cells, backward, strict=True))
    ]
    # ONNX Runtime clears the states of rows that have ended where it writes all states.
    ended = not (node.proto.output and node.proto.output[0])
    ran = run(b, x, node.optional(4), directions, ended)
    every = _stacked(b, [r[0] for r in ran], 1)
    last = _stacked(b, [r[1] for r in ran], 0)
    outputs: list[Value | None] = [
        layout.transpose(b, every, [2, 0, 1, 3]) if batch_first else every,
        layout.transpose(b, last, [1, 0, 2]) if batch_first else last,
    ]
    if kind == "LSTM":
        memory = _stacked(b, [r[2] for r in ran if r[2] is not None], 0)
        outputs.append(layout.transpose(b, memory, [1, 0, 2]) if batch_first else memory)
    return [None if value is None else ew.cast(b, value, dtype) for value in outputs]


def _stacked(b: Builder, values: list[Value], axis: int) -> Value:
    return layout.concat(b, [layout.unsqueeze(b, value, [axis]) for value in values], axis)


def _direction(
    b: Builder,
    node: Node,
    index: int,
    cell: Cell,
    backward: bool,
    batch_first: bool,
    quantized: Sequence[QuantizedWeights],
) -> Direction:
    def part(position: int, state: bool = False) -> Value | None:
        value = node.optional(position)
        if value is None:
            return None
        value = layout.transpose(b, value, [1, 0, 2]) if state and batch_first else value
        return indexing.item(b, value, 0, index)

    def weights(position: int) -> Value | DequantizedWeights | None:
        value = node.optional(position)
        known = None if value is None else DequantizedWeights.of(b.dequantized.get(value), index)
        return known or part(position)

    w: Value | Quantized | None
    r: Value | Quantized | None
    if quantized:
        w, r = (one.of_direction(b, index) for one in quantized)
    else:
        w, r = weights(1), weights(2)
    if w is None or r is None:
        node.fail("W and R are required", reason="input")
    return Direction(cell, w, r, part(3), part(7), part(5, True), part(6, True), backward)


def _cells(node: Node, kind: str, directions: int) -> list[Cell]:
    """One cell a direction; alpha and beta are handed to those activations that take them, in
    order.
    """
    names = node.attr("activations", None) or list(DEFAULTS[kind]) * directions
    alphas, betas = iter(node.attr("activation_alpha", [])), iter(node.attr("activation_beta", []))
    activations = [
        activation(
            name,
            next(alphas, None) if name.lower() in TAKES_ALPHA else None,
            next(betas, None) if name.lower() in TAKES_BETA else None,
        )
        for name in names
    ]
    each = len(DEFAULTS[kind])
    return [
        Cell(
            kind,
            tuple(activations[d * each : (d + 1) * each]),
            node.attr("clip", None),
            bool(node.attr("input_forget", 0)),
            bool(node.attr("linear_before_reset", 0)),
        )
        for d in range(directions)
    ]
