"""ONNX's random operators: numbers by the seed, which becomes an input of the model."""

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.model.dtypes import DTYPES
from compiler.ir.onnx.model.expansions import LAWS, draw_of, expand_random
from compiler.ir.onnx.model.lists import Content
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.registry import op
from compiler.ir.ops.math import random

_LOOPS = "a node in the body of a Loop or Scan would draw the same numbers in every iteration"


@op(*LAWS)
def numbers(b: Builder, node: Node) -> Value:
    """Uniform or normal numbers, of a given shape or in the shape of another tensor."""
    if node.scope.repeated:
        hint = "draw all numbers before the loop, and slice them in it"
        node.fail(_LOOPS, reason="random_loop", hint=hint)
    like = node.value(0) if node.op.endswith("Like") else None
    shape = like.shape if like is not None else tuple(node.attr("shape"))
    elements = node.attr("dtype", None)
    dtype = (like.dtype if like else "float32") if elements is None else DTYPES.get(elements, "")
    if not dtype.startswith(("float", "bfloat")):
        node.fail("random numbers are floats", reason="dtype")
    return random.draw(b, draw_of(node.proto, dtype), shape)


@op("Bernoulli", "Multinomial")
def choose_at_random(b: Builder, node: Node) -> list[Content | None]:
    """Indices or bits that uniform numbers decide, by a subgraph of plain operators."""
    nodes = expand_random(node.proto, node.value(0).dtype, node.opset)
    assert nodes is not None
    return node.scope.inline(nodes, node.proto.output)
