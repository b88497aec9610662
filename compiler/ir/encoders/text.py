"""Encoders of text as ONNX models: the embedding of tokens, and what heads make of the layers."""

from collections.abc import Callable
from typing import TypeAlias

import onnx

from compiler.ir.decoders.graph import Graph
from compiler.ir.encoders.design import Activation, Design, Head, Linear, Part, Text, Weights
from compiler.ir.encoders.heads import add_head, add_pooler
from compiler.ir.encoders.layers import Layers
from compiler.ir.encoders.nodes import (
    INTEGER,
    REAL,
    extent,
    info,
    integer,
    integers,
    multiply,
    normalize,
    weight,
)

BATCH, LENGTH = "batch_size", "sequence_length"
TOKENS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
STATES = "last_hidden_state"
Outputs: TypeAlias = list[onnx.ValueInfoProto]
Finish: TypeAlias = Callable[[Graph, str], Outputs]
"""Adds what follows the last layer, of the name of its result, and describes the outputs."""


def text_model(text: Text, design: Design, weights: Weights, finish: Finish) -> onnx.ModelProto:
    """The encoder, with the inputs that transformers' models have; raises LoadError for weights
    that are missing or have other shapes.
    """
    graph = Graph("encoder")
    x = _embed(graph, text, design, weights)
    outputs = finish(graph, Layers(graph, design, weights, MASK, text.longest).add(x))
    names = [TOKENS, MASK, *([TYPES] if text.types > 1 else [])]
    return graph.model([info(name, INTEGER, [BATCH, LENGTH]) for name in names], outputs)


def states_of(design: Design, weights: Weights) -> Finish:
    """The last layer's result, and the pooled one of an encoder that has such a matmul."""

    def finish(graph: Graph, x: str) -> Outputs:
        graph.node("Identity", [x], STATES)
        outputs = [info(STATES, REAL, [BATCH, LENGTH, design.width])]
        if weights.has(Part.POOLER):
            columns = add_pooler(graph, x, design, weights, Activation.TANH)
            outputs.append(info("pooler_output", REAL, [BATCH, columns]))
        return outputs

    return finish


def logits_of(head: Head, text: Text, design: Design, weights: Weights) -> Finish:
    """The logits of a head."""

    def finish(graph: Graph, x: str) -> Outputs:
        axes: list[str | int] = [BATCH] if head.pool else [BATCH, LENGTH]
        matmul = _tied(text, design, weights) if head.tied else None
        columns = add_head(graph, x, head, design, weights, MASK, matmul)
        if len(head.names) > 1:
            return [info(name, REAL, axes) for name in head.names]
        return [info(head.names[0], REAL, [*axes, columns])]

    return finish


def _tied(text: Text, design: Design, weights: Weights) -> Linear:
    table = weights.tensor(Part.TOKENS, None, (text.vocabulary, text.width))
    bias = weights.tensor(Part.LOGITS, None, (text.vocabulary,))
    return Linear(table, bias)


def _embed(graph: Graph, text: Text, design: Design, weights: Weights) -> str:
    table = weights.tensor(Part.TOKENS, None, (text.vocabulary, text.width))
    x = graph.rows(table, TOKENS, "tokens")
    if text.types:
        kinds = weights.tensor(Part.TYPES, None, (text.types, text.width))
        # Of one kind, every token has its row.
        row = TYPES if text.types > 1 else integer(graph, 0)
        x = graph.node("Add", [x, graph.rows(kinds, row, "types")], "tokens.typed")
    if text.positions is not None:
        x = graph.node("Add", [x, _positions(graph, text, text.positions, weights)], "placed")
    norm = weights.norm(Part.EMBEDDING_NORM, None, text.width)
    x = normalize(graph, x, norm, design.epsilon, "embedded")
    if text.width == design.width:
        return x
    matrix = weights.linear(Part.EMBEDDING_MATRIX, None, design.width, text.width)
    return multiply(graph, x, matrix, "widened")


def _positions(graph: Graph, text: Text, rows: int, weights: Weights) -> str:
    """The rows of the table of positions: [length, width], or [batch, length, width] where padding
    has a row of its own.
    """
    table = weights.tensor(Part.POSITIONS, None, (rows, text.width))
    if text.padding is None:
        bounds = [integers(graph, 0), extent(graph, TOKENS, 1, "length"), integers(graph, 0)]
        return graph.node("Slice", [weight(graph, table), *bounds], "positions")
    padding = integer(graph, text.padding)
    graph.node("Equal", [TOKENS, padding], "is_padding")
    graph.node("Not", ["is_padding"], "is_token")
    graph.node("Cast", ["is_token"], "ones", to=INTEGER)
    graph.node("CumSum", ["ones", integer(graph, 1)], "counted")
    graph.node("Mul", ["counted", "ones"], "numbered")
    graph.node("Add", ["numbered", padding], "position_rows")
    return graph.rows(table, "position_rows", "positions")
