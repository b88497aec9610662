"""Rotary embeddings of ONNX and of ONNX Runtime's own domain."""

from tvm import te

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators.contrib import MICROSOFT
from compiler.ir.onnx.operators.indexing import indexes
from compiler.ir.onnx.registry import op
from compiler.ir.ops.attention.attention import join_heads, split_heads
from compiler.ir.ops.attention.rotary import Rotation, angles, rotate
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise.broadcast import expand
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


@op("RotaryEmbedding", since=23)
def rotary_embedding(b: Builder, node: Node) -> Value:
    """Inputs x, cos, sin and positions; without positions the caches hold the angles of each batch
    entry's rows.
    """
    cos, sin = node.value(1), node.value(2)
    if node.has(3):
        indexes(b, node, 3, cos.shape[0])
        cos, sin = (angles(b, cache, node.value(3)) for cache in (cos, sin))
    return _rotated(b, node, cos, sin)


@op("RotaryEmbedding", domain=MICROSOFT)
def microsoft_rotary_embedding(b: Builder, node: Node) -> Value:
    """Inputs x, positions, cos and sin; one position alone is that of the first row."""
    if node.attr("is_packed_batching", 0):
        node.fail(
            "packed batches are not supported", reason="unsupported_form", hint="pad the sequences"
        )
    if node.attr("scale", 1.0) != 1:
        # ONNX Runtime documents it and leaves it out.
        node.fail(
            "a scale other than 1 is not supported",
            reason="unsupported_form",
            hint="multiply by it in a node of its own",
        )
    x, positions, cos, sin = (node.value(index) for index in range(4))
    if len(positions.shape) == 1:
        positions = _counted(b, x, positions)
    else:
        indexes(b, node, 1, cos.shape[0])
    cos, sin = (angles(b, cache, positions) for cache in (cos, sin))
    return _rotated(b, node, cos, sin)


def _counted(b: Builder, x: Value, first: Value) -> Value:
    """int64[batch, length]: positions from the one given on."""
    rows = x.shape[-2]
    return ew.add(
        b,
        expand(b, ew.cast(b, layout.reshape(b, first, [1, 1]), "int64"), [x.shape[0], rows]),
        _steps(b, rows),
    )


def _steps(b: Builder, count: ex.Extent) -> Value:
    """int64[count]: 0, 1, 2, ..."""
    return b.te(lambda: te.compute([ex.prim(count)], lambda i: i, name="steps"), name="steps")


def _rotated(b: Builder, node: Node, cos: Value, sin: Value) -> Value:
    x = node.value(0)
    width = node.attr("rotary_embedding_dim", 0)
    if len(x.shape) == 4:
        heads = x
    else:
        count = node.attr("num_heads", 0)
        if not count and node.op.startswith(MICROSOFT) and width == 0:
            count = b.facts.simplify(ex.floordiv(x.shape[2], ex.mul(cos.shape[-1], 2)))
        if not isinstance(count, int) or count < 1:
            node.fail("num_heads is required where the input has three axes", reason="attribute")
        heads = split_heads(b, x, count)
    b.same(
        ex.mul(cos.shape[-1], 2),
        width or heads.shape[3],
        "the caches' width is not half of what is rotated",
    )
    turned = rotate(b, heads, Rotation(cos, sin, bool(node.attr("interleaved", 0))))
    return turned if len(x.shape) == 4 else join_heads(b, turned)
