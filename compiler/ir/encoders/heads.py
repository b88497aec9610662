"""Heads of encoders: pooled vectors and logits."""

from compiler.ir.decoders.graph import Graph
from compiler.ir.encoders.design import Activation, Design, Head, Linear, Part, Pool, Weights
from compiler.ir.encoders.nodes import (
    REAL,
    activate,
    first_token,
    integer,
    integers,
    multiply,
    normalize,
)


def add_pooler(
    graph: Graph, x: str, design: Design, weights: Weights, activation: Activation
) -> int:
    """Add `pooler_output` [batch, columns] of x [batch, length, width]; the number of columns."""
    linear = weights.linear(Part.POOLER, None, None, design.width)
    pooled = multiply(graph, first_token(graph, x), linear, "pooled")
    activate(graph, pooled, activation, "pooler_output")
    return linear.columns


def add_head(
    graph: Graph,
    x: str,
    head: Head,
    design: Design,
    weights: Weights,
    mask: str,
    matmul: Linear | None = None,
) -> int:
    """Add the head's outputs of x [batch, length, width]; the number of columns of the logits.

    mask: int64 [batch, length], of the tokens that a mean counts; matmul: instead of the head's
    own.
    """
    width = design.width
    if head.pool is not None:
        x = first_token(graph, x) if head.pool is Pool.FIRST else add_mean(graph, x, mask, "mean")
    if head.hidden is not None:
        x = multiply(graph, x, weights.linear(Part.HEAD, None, width, width), "head")
        x = activate(graph, x, head.hidden, "head.active")
        norm = weights.norm(Part.HEAD_NORM, None, width)
        x = normalize(graph, x, norm, design.epsilon, "head.normal")
    columns = len(head.names) if len(head.names) > 1 else None
    matmul = matmul or weights.linear(Part.LOGITS, None, columns, width)
    multiply(graph, x, matmul, "logits")
    if len(head.names) > 1:
        for index, name in enumerate(head.names):
            graph.node("Gather", ["logits", integer(graph, index)], name, axis=-1)
    return matmul.columns


def add_mean(graph: Graph, x: str, mask: str, output: str) -> str:
    """The mean of the tokens that the mask shows, [batch, width]."""
    total, count = add_masked_sum(graph, x, mask, output)
    return graph.node("Div", [total, count], output)


def add_masked_sum(graph: Graph, x: str, mask: str, output: str) -> tuple[str, str]:
    """The sum of the tokens that the mask shows [batch, width], and their number [batch, 1]."""
    shown = graph.node("Cast", [mask], f"{output}.mask", to=REAL)
    column = graph.node("Unsqueeze", [shown, integers(graph, 2)], f"{output}.weights")
    parts = graph.node("Mul", [x, column], f"{output}.shown")
    axis = integers(graph, 1)
    total = graph.node("ReduceSum", [parts, axis], f"{output}.total", keepdims=0)
    return total, graph.node("ReduceSum", [column, axis], f"{output}.count", keepdims=0)
