"""Gradients of operators that programs of torch's own compilers call by name, as formulas."""

from __future__ import annotations

from typing import Any

from compiler.ir.aten.algebra import Array, argument, optional
from compiler.ir.aten.node import Node
from compiler.ir.aten.operands import scalar
from compiler.ir.aten.operators.creation import fill_with
from compiler.ir.aten.registry import op, refuse
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.ops.shape import scatter as sc
from compiler.ir.shapes import extents as ex


@op("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(b: Builder, node: Node) -> Value:
    """The gradient of a softmax, or of its logarithm, from its own output."""
    grad, output = argument(b, node, "grad_output"), argument(b, node, "output")
    axes = [node.axis("dim", grad.rank)] if grad.rank else []
    if node.kind == "aten::_softmax_backward_data":
        weighted = grad * output
        result = weighted - output * weighted.reduce("sum", axes, True)
    else:
        result = grad - output.exp() * grad.reduce("sum", axes, True)
    return result.cast(node.dtype("input_dtype", grad.dtype)).value


@op("native_dropout_backward")
def dropout_backward(b: Builder, node: Node) -> Value:
    """The gradient of dropout: what its mask kept, scaled."""
    grad = argument(b, node, "grad_output")
    return (grad * argument(b, node, "mask").cast(grad.dtype) * node.float("scale")).value


@op("native_layer_norm_backward")
def layer_norm_backward(b: Builder, node: Node) -> list[Value | None]:
    """The gradients of layer norm's input, weight and bias; None for those that the mask leaves
    out.
    """
    grad, x = argument(b, node, "grad_out"), argument(b, node, "input")
    weight = optional(b, node, "weight")
    first = x.rank - len(node.items("normalized_shape"))
    inner, outer = list(range(first, x.rank)), list(range(first))
    normal = (x - argument(b, node, "mean")) * argument(b, node, "rstd")
    scaled = grad if weight is None else grad * weight
    count = b.facts.simplify(ex.prod(x.shape[first:]))
    size = Array(b, ew.cast(b, Known.of(count, "int64"), x.dtype))
    centred = (
        scaled * size
        - scaled.reduce("sum", inner, True)
        - normal * (scaled * normal).reduce("sum", inner, True)
    )
    to_input, to_weight, to_bias = node.items("output_mask")
    return [
        (argument(b, node, "rstd") / size * centred).value if to_input else None,
        (grad * normal).reduce("sum", outer).value if to_weight and weight is not None else None,
        grad.reduce("sum", outer).value if to_bias and node.has("bias") else None,
    ]


@op("max_pool2d_with_indices_backward")
def max_pool_backward(b: Builder, node: Node) -> Value:
    """Gradients of a pooling's outputs added up at the positions of the maxima."""
    x, grad, positions = (node.value(name) for name in ("self", "grad_output", "indices"))
    lead = x.shape[:-2]
    area, taken = (b.facts.simplify(ex.prod(value.shape[-2:])) for value in (x, grad))
    rows = b.facts.simplify(ex.prod(lead))
    flat = [layout.reshape(b, value, [rows, taken]) for value in (positions, grad)]
    zeros = fill_with(b, [rows, area], scalar(b, 0, grad.dtype))
    added = sc.scatter_elements(b, zeros, flat[0], flat[1], 1, sc.Reduction.ADD)
    return layout.reshape(b, added, x.shape)


def _refused(*names: str) -> Any:
    refuse(
        *names,
        why="an operator of gradients and of torch's own compilers, which models for inference do "
        "not have",
    )


_refused("_segment_reduce_backward", "_batch_norm_with_update")
