"""Operators as opset 6 had them, which old exporters still wrote: broadcasting by attribute, along
a named axis.
"""

from dataclasses import replace

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators import arithmetic, linear, normalization, unary
from compiler.ir.onnx.registry import Handler, Result, op
from compiler.ir.ops.shape import layout


def _register(name: str, handler: Handler) -> None:
    @op(name, since=6)
    def along_axis(b: Builder, node: Node) -> Result:
        return handler(b, _aligned(b, node))


for _name, _handler in {
    "Add": arithmetic.add,
    "Sub": arithmetic.sub,
    "Mul": arithmetic.mul,
    "Div": arithmetic.div,
    "Pow": arithmetic.power,
}.items():
    _register(_name, _handler)

op("Max", since=6)(arithmetic.maximum)
op("Min", since=6)(arithmetic.minimum)
op("Sum", since=6)(arithmetic.total)
op("Mean", since=6)(arithmetic.mean)
op("Gemm", since=6)(linear.gemm)


def _aligned(b: Builder, node: Node) -> Node:
    """The node with its second input's axes from `axis` on moved to where today's broadcasting
    finds them.
    """
    x, y = node.value(0), node.value(1)
    axis = node.attr("axis", None)
    if not node.attr("broadcast", 0) or axis is None:
        return node
    trailing = len(x.shape) - layout.axis_of(axis, len(x.shape)) - len(y.shape)
    return replace(node, inputs=(x, _with_ones(b, node, y, trailing)))


def _with_ones(b: Builder, node: Node, y: Value, trailing: int) -> Value:
    if trailing < 0:
        node.fail(
            f"the second input's {len(y.shape)} axes do not fit from the axis on",
            reason="attribute",
        )
    return layout.unsqueeze(b, y, range(len(y.shape), len(y.shape) + trailing)) if trailing else y


@op("PRelu", since=6)
def prelu(b: Builder, node: Node) -> Result:
    """The slope is one for all, or one a channel."""
    x, slope = node.value(0), node.value(1)
    trailing = (
        len(x.shape) - 2
        if len(slope.shape) == 1 and b.facts.same(slope.shape[0], 1) is not True
        else 0
    )
    return unary.prelu(b, replace(node, inputs=(x, _with_ones(b, node, slope, max(trailing, 0)))))


@op("Dropout", since=1)
def dropout(b: Builder, node: Node) -> Result:
    """The input, with a mask of trues, unless the node trains."""
    if not node.attr("is_test", 0):
        node.fail(
            "Dropout in training mode is supported from opset 12 on",
            reason="training",
            hint="export for inference",
        )
    return normalization.dropout(b, node)


@op("BatchNormalization", since=6)
def batch_norm(b: Builder, node: Node) -> Result:
    """By running statistics alone."""
    if not node.attr("is_test", 0):
        node.fail(
            "batch normalisation in training mode is supported from opset 14 on",
            reason="training",
            hint="export for inference",
        )
    return normalization.batch_norm(b, node)
