"""Embeddings of sentences: the modules of sentence-transformers behind an encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from onnx import TensorProto

from compiler.ir.decoders.graph import Graph
from compiler.ir.encoders.design import Activation, Design, Linear
from compiler.ir.encoders.heads import add_masked_sum
from compiler.ir.encoders.nodes import (
    INTEGER,
    REAL,
    activate,
    extent,
    info,
    integer,
    integers,
    multiply,
    real,
)
from compiler.ir.encoders.text import BATCH, LENGTH, MASK, Finish, Outputs

_LEAST_COUNT, _LEAST_NORM = 1e-9, 1e-12
"""The divisors of a sentence without tokens, and of a vector of zeros."""


class Mode(StrEnum):
    """How the vectors of tokens become one."""

    CLS = "cls"
    MAX = "max"
    MEAN = "mean"
    MEAN_SQRT = "mean_sqrt_len_tokens"
    WEIGHTED = "weightedmean"
    LAST = "lasttoken"


@dataclass(frozen=True)
class Pooling:
    """Vectors by these modes, one behind the other."""

    modes: tuple[Mode, ...]


@dataclass(frozen=True)
class Dense:
    """A matmul with an activation, None for none."""

    linear: Linear
    activation: Activation | None


@dataclass(frozen=True)
class Normalize:
    """Divides by the Euclidean norm."""


Module: TypeAlias = Pooling | Dense | Normalize


def sentences_of(design: Design, modules: Sequence[Module]) -> Finish:
    """`sentence_embedding` [batch, columns] and the vectors of tokens that it was made from."""

    def finish(graph: Graph, x: str) -> Outputs:
        tokens = graph.node("Identity", [x], "token_embeddings")
        width, x = design.width, tokens
        for index, module in enumerate(modules):
            x, width = _add(graph, x, width, module, f"module{index}")
        graph.node("Identity", [x], "sentence_embedding")
        return [
            info("sentence_embedding", REAL, [BATCH, width]),
            info(tokens, REAL, [BATCH, LENGTH, design.width]),
        ]

    return finish


def _add(graph: Graph, x: str, width: int, module: Module, name: str) -> tuple[str, int]:
    """The module's result and its number of columns."""
    if isinstance(module, Pooling):
        vectors = [_pool(graph, x, mode, f"{name}.{mode}") for mode in module.modes]
        if len(vectors) == 1:
            return vectors[0], width
        return graph.node("Concat", vectors, name, axis=-1), width * len(vectors)
    if isinstance(module, Dense):
        x = multiply(graph, x, module.linear, name)
        if module.activation is not None:
            x = activate(graph, x, module.activation, f"{name}.active")
        return x, module.linear.columns
    norm = graph.node("ReduceL2", [x, integers(graph, -1)], f"{name}.norm", keepdims=1)
    least = real(graph, "least_norm", _LEAST_NORM)
    return graph.node("Div", [x, graph.node("Max", [norm, least], f"{name}.divisor")], name), width


def _pool(graph: Graph, x: str, mode: Mode, name: str) -> str:
    if mode in (Mode.CLS, Mode.LAST):
        return _pick(graph, x, mode, name)
    if mode is Mode.MAX:
        return _maximum(graph, x, name)
    weights = _weights(graph, name) if mode is Mode.WEIGHTED else MASK
    total, count = add_masked_sum(graph, x, weights, name)
    divisor = graph.node("Max", [count, real(graph, "least_count", _LEAST_COUNT)], f"{name}.least")
    if mode is Mode.MEAN_SQRT:
        divisor = graph.node("Sqrt", [divisor], f"{name}.root")
    return graph.node("Div", [total, divisor], name)


def _pick(graph: Graph, x: str, mode: Mode, name: str) -> str:
    """The vector of the first token that the mask shows, or of the last; of none, the first token,
    and zeros.
    """
    shown = graph.node("Cast", [MASK], f"{name}.mask", to=TensorProto.INT32)
    last = int(mode is Mode.LAST)
    position = graph.node(
        "ArgMax", [shown], f"{name}.position", axis=1, keepdims=1, select_last_index=last
    )
    index = graph.node("Unsqueeze", [position, integers(graph, 2)], f"{name}.index")
    batch, width = (extent(graph, x, axis, f"{name}.extent{axis}") for axis in (0, 2))
    shape = graph.node("Concat", [batch, integers(graph, 1), width], f"{name}.shape", axis=0)
    rows = graph.node("Expand", [index, shape], f"{name}.rows")
    picked = graph.node("GatherElements", [x, rows], f"{name}.picked", axis=1)
    vector = graph.node("Squeeze", [picked, integers(graph, 1)], f"{name}.vector")
    if mode is Mode.CLS:
        return vector
    most = graph.node("ReduceMax", [shown, integers(graph, 1)], f"{name}.any", keepdims=1)
    factor = graph.node("Cast", [most], f"{name}.factor", to=REAL)
    return graph.node("Mul", [vector, factor], name)


def _maximum(graph: Graph, x: str, name: str) -> str:
    shown = graph.node("Cast", [MASK], f"{name}.mask", to=TensorProto.BOOL)
    column = graph.node("Unsqueeze", [shown, integers(graph, 2)], f"{name}.column")
    lowest = real(graph, "minus_infinity", float("-inf"))
    tokens = graph.node("Where", [column, x, lowest], f"{name}.shown")
    return graph.node("ReduceMax", [tokens, integers(graph, 1)], name, keepdims=0)


def _weights(graph: Graph, name: str) -> str:
    """The mask times positions from 1, counted from the first token that it shows."""
    shown = graph.node("Cast", [MASK], f"{name}.int32", to=TensorProto.INT32)
    first = graph.node("ArgMax", [shown], f"{name}.first", axis=1, keepdims=1)
    length = graph.node("Squeeze", [extent(graph, MASK, 1, f"{name}.length")], f"{name}.end")
    end = graph.node("Add", [length, integer(graph, 1)], f"{name}.stop")
    steps = graph.node("Range", [integer(graph, 1), end, integer(graph, 1)], f"{name}.steps")
    positions = graph.node("Sub", [steps, first], f"{name}.positions")
    ones = graph.node("Cast", [shown], f"{name}.ones", to=INTEGER)
    return graph.node("Mul", [positions, ones], f"{name}.by_position")
