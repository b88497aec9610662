"""Images to columns of patches and back."""

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from compiler.ir.aten.node import Node
from compiler.ir.aten.operators.convolution import per_axis
from compiler.ir.aten.registry import op
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.nn import unpool
from compiler.ir.ops.nn.window import Window, read_inside
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def _window(node: Node) -> Window:
    pads = per_axis(node, "padding", 2, 0)
    return Window.of(
        per_axis(node, "kernel_size", 2),
        per_axis(node, "stride", 2),
        per_axis(node, "dilation", 2),
        [*pads, *pads],
    )


@op("im2col")
def im2col(b: Builder, node: Node) -> Value:
    """[N, C, H, W] (or without N) to [N, C * taps, windows]."""
    x, window = node.value("self"), _window(node)
    single = len(x.shape) == 3
    if single:
        x = layout.unsqueeze(b, x, [0])
    image = x.shape[2:]
    out = window.out(b, image)
    shape = [*x.shape[:2], *window.kernel, *out]
    columns = b.te(lambda data: _columns(data, window, image, shape), x, name="im2col")
    rows = [ex.prod(shape[1:4]), ex.prod(out)]
    patches = layout.reshape(
        b, columns, [x.shape[0], *(b.facts.simplify(extent) for extent in rows)]
    )
    return layout.squeeze(b, patches, [0]) if single else patches


def _columns(
    data: te.Tensor, window: Window, image: Sequence[Extent], shape: Sequence[Extent]
) -> te.Tensor:
    def element(n: Any, c: Any, *index: Any) -> Any:
        return read_inside(
            lambda *i: data(n, c, *i),
            window.under(index[2:], index[:2]),
            image,
            tirx.const(0, data.dtype),
        )

    return te.compute([ex.prim(extent) for extent in shape], element, name="im2col")


@op("col2im")
def col2im(b: Builder, node: Node) -> Value:
    """[N, C * taps, windows] (or without N) added up to [N, C, *output_size]."""
    x = node.value("self")
    single = len(x.shape) == 2
    image = unpool.col2im(
        b, layout.unsqueeze(b, x, [0]) if single else x, node.sizes("output_size"), _window(node)
    )
    return layout.squeeze(b, image, [0]) if single else image
