"""The attributes that convolutions and pools share, read into a Window."""

from collections.abc import Sequence

from compiler.ir.graph.builder import Builder
from compiler.ir.onnx.node import Node
from compiler.ir.ops.nn.window import AutoPad, Window
from compiler.ir.shapes.extents import Extent


def auto_pad(node: Node) -> AutoPad:
    """The auto_pad attribute; fails for a name that ONNX does not have."""
    name = node.attr("auto_pad", "NOTSET") or "NOTSET"
    if name not in AutoPad.__members__:
        node.fail(f"auto_pad {name!r} is none of {', '.join(AutoPad)}", reason="attribute")
    return AutoPad(name)


def window_of(
    b: Builder, node: Node, extents: Sequence[Extent], kernel: Sequence[Extent]
) -> Window:
    """The node's window over an input of the given spatial extents, its padding worked out."""
    if len(extents) != len(kernel):
        node.fail(
            f"a kernel of {len(kernel)} axes for an input of {len(extents)} spatial axes",
            reason="shape",
        )
    mode = auto_pad(node)
    pads = node.attr("pads", None) if mode is AutoPad.NOTSET else None
    return Window.of(kernel, node.attr("strides", None), node.attr("dilations", None), pads).auto(
        b, extents, mode
    )
