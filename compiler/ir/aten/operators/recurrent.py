"""Recurrent layers and cells."""

from collections.abc import Iterator, Sequence

import numpy as np
from tvm import relax

from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import scalar
from compiler.ir.aten.operators.unary import of_float
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.math import linear
from compiler.ir.ops.nn.recurrent import Direction, run
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing, layout
from compiler.ir.shapes import extents as ex
from compiler.recurrences.cells import Activation, Cell, activation

_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where torch keeps each of the gates in the order of ops.recurrent: ifgo as iofc, rzn as zrh."""


def _activations(*names: str) -> tuple[Activation, ...]:
    return tuple(activation(name, None, None) for name in names)


def _cell(kind: str, nonlinearity: str = "tanh") -> Cell:
    names = {
        "LSTM": ("sigmoid", "tanh", "tanh"),
        "GRU": ("sigmoid", "tanh"),
        "RNN": (nonlinearity,),
    }[kind]
    return Cell(kind, _activations(*names), linear_before_reset=True)


@op("lstm")
def lstm(b: Builder, node: Node) -> list[Value]:
    """Output, last hidden states and last cell states."""
    return _layers(b, node, _cell("LSTM"), node.values("hx"))


@op("gru")
def gru(b: Builder, node: Node) -> list[Value]:
    """Output and last hidden states."""
    return _layers(b, node, _cell("GRU"), [node.value("hx")])


@op("rnn_tanh", "rnn_relu")
def rnn(b: Builder, node: Node) -> list[Value]:
    """Output and last hidden states."""
    return _layers(b, node, _cell("RNN", node.kind.removeprefix("aten::rnn_")), [node.value("hx")])


def _layers(b: Builder, node: Node, cell: Cell, states: Sequence[Value]) -> list[Value]:
    """Layer over layer; states are [layers * directions, batch, hidden]."""
    if "data" in node.names:
        node.fail(
            "packed sequences are not supported",
            reason="unsupported_form",
            hint="give the recurrent layer padded sequences",
        )
    x = node.value("input")
    dtype = x.dtype
    batch_first = node.bool("batch_first")
    if node.bool("train") and node.float("dropout") != 0:
        node.fail(
            "a recurrent layer in training mode is not supported",
            reason="unsupported_form",
            hint="save the model in evaluation mode",
        )
    x = layout.transpose(b, x, [1, 0, 2]) if batch_first else x
    directions = 2 if node.bool("bidirectional") else 1
    weights = iter(node.values("params"))
    finals: list[list[Value]] = [[] for _ in states]
    for layer in range(node.int("num_layers")):
        parameters = []
        for direction in range(directions):
            index = layer * directions + direction
            mine = [indexing.item(b, state, 0, index) for state in states]
            parameters.append(_direction(b, node, cell, weights, mine, direction == 1))
        results = [
            [ew.cast(b, value, dtype) for value in values if value is not None]
            for values in run(b, x, None, parameters)
        ]
        for _, *last in results:
            for column, final in zip(finals, last, strict=True):
                column.append(layout.unsqueeze(b, final, [0]))
        x = layout.concat(b, [outputs for outputs, *_ in results], 2)
    every = layout.transpose(b, x, [1, 0, 2]) if batch_first else x
    return [every, *(layout.concat(b, column, 0) for column in finals)]


def _direction(
    b: Builder,
    node: Node,
    cell: Cell,
    weights: Iterator[Value],
    states: Sequence[Value],
    backward: bool,
) -> Direction:
    """One direction of one layer, its weights taken from the list."""
    w, r = (_reordered(b, cell, next(weights)) for _ in range(2))
    bias = (
        layout.concat(b, [_reordered(b, cell, next(weights)) for _ in range(2)], 0)
        if node.bool("has_biases")
        else None
    )
    hidden = b.facts.simplify(ex.floordiv(r.shape[0], cell.gates))
    if b.facts.same(r.shape[1], hidden) is not True:
        node.fail("projections are not supported", reason="unsupported_form")
    memory = states[1] if len(states) > 1 else None
    return Direction(cell, w, r, bias, None, states[0], memory, backward)


def _reordered(b: Builder, cell: Cell, weight: Value) -> Value:
    """Gates along the first axis in the order of ops.recurrent."""
    order = _ORDER[cell.kind]
    if len(order) == 1:
        return weight
    hidden = b.facts.simplify(ex.floordiv(weight.shape[0], len(order)))
    parts = layout.split(b, weight, 0, [hidden] * len(order))
    return layout.concat(b, [parts[gate] for gate in order], 0)


def _gates(b: Builder, node: Node, x: Value, h: Value) -> tuple[Value, Value]:
    """The input's and the hidden state's shares of all gates."""
    shares = []
    for value, weight, bias_name in ((x, "w_ih", "b_ih"), (h, "w_hh", "b_hh")):
        share = linear.matmul(b, value, layout.transpose(b, node.value(weight), [1, 0]))
        bias = node.optional(bias_name)
        shares.append(share if bias is None else ew.add(b, share, bias))
    return shares[0], shares[1]


def _split(b: Builder, x: Value, parts: int) -> tuple[Value, ...]:
    axis = len(x.shape) - 1
    width = b.facts.simplify(ex.floordiv(x.shape[axis], parts))
    return layout.split(b, x, axis, [width] * parts)


def _sigmoid(b: Builder, x: Value) -> Value:
    return of_float(b, x, relax.op.sigmoid)


def _tanh(b: Builder, x: Value) -> Value:
    return of_float(b, x, relax.op.tanh, np.tanh)


@op("lstm_cell")
def lstm_cell(b: Builder, node: Node) -> list[Value]:
    """The next hidden and cell state."""
    h, c = node.values("hx")
    i, f, g, o = _split(b, ew.add(b, *_gates(b, node, node.value("input"), h)), 4)
    memory = ew.add(
        b, ew.multiply(b, _sigmoid(b, f), c), ew.multiply(b, _sigmoid(b, i), _tanh(b, g))
    )
    return [ew.multiply(b, _sigmoid(b, o), _tanh(b, memory)), memory]


@op("gru_cell")
def gru_cell(b: Builder, node: Node) -> Value:
    """The next hidden state."""
    h = node.value("hx")
    mine, past = _gates(b, node, node.value("input"), h)
    (rx, zx, nx), (rh, zh, nh) = _split(b, mine, 3), _split(b, past, 3)
    reset, update = _sigmoid(b, ew.add(b, rx, rh)), _sigmoid(b, ew.add(b, zx, zh))
    new = _tanh(b, ew.add(b, nx, ew.multiply(b, reset, nh)))
    return ew.add(
        b,
        ew.multiply(b, ew.subtract(b, scalar(b, 1, new.dtype), update), new),
        ew.multiply(b, update, h),
    )


@op("rnn_tanh_cell", "rnn_relu_cell")
def rnn_cell(b: Builder, node: Node) -> Value:
    """The next hidden state."""
    total = ew.add(b, *_gates(b, node, node.value("input"), node.value("hx")))
    return _tanh(b, total) if "tanh" in node.kind else ew.unary(b, total, relax.op.nn.relu)
