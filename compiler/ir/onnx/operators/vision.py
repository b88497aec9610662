"""ONNX operators on images: blocks, grids, regions and deformable windows."""

from collections.abc import Sequence

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.onnx.indices import limit_values
from compiler.ir.onnx.node import Node
from compiler.ir.onnx.operators.convolution import kernel_of
from compiler.ir.onnx.registry import op
from compiler.ir.ops.nn import roi, sample, unpool
from compiler.ir.ops.nn.resize import Interpolation
from compiler.ir.ops.nn.window import Window
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def _divided(b: Builder, extent: Extent, by: int) -> Extent:
    b.require(
        ex.equal(ex.floormod(extent, by), 0),
        f"an axis of {extent} does not divide into blocks of {by}",
    )
    return b.facts.simplify(ex.floordiv(extent, by))


@op("DepthToSpace")
def depth_to_space(b: Builder, node: Node) -> Value:
    """Channels laid out as blocks of elements."""
    x, block = node.value(0), node.attr("blocksize")
    n, c, h, w = x.shape
    depth = _divided(b, c, block * block)
    shape = [n, depth, b.facts.simplify(ex.mul(h, block)), b.facts.simplify(ex.mul(w, block))]
    if _depth_first(node):
        split = layout.reshape(b, x, [n, block, block, depth, h, w])
        return layout.reshape(b, layout.transpose(b, split, [0, 3, 4, 1, 5, 2]), shape)
    split = layout.reshape(b, x, [n, depth, block, block, h, w])
    return layout.reshape(b, layout.transpose(b, split, [0, 1, 4, 2, 5, 3]), shape)


@op("SpaceToDepth")
def space_to_depth(b: Builder, node: Node) -> Value:
    """Blocks of elements laid out as channels."""
    x, block = node.value(0), node.attr("blocksize")
    n, c, h, w = x.shape
    rows, columns = _divided(b, h, block), _divided(b, w, block)
    split = layout.reshape(b, x, [n, c, rows, block, columns, block])
    order = [0, 3, 5, 1, 2, 4] if _depth_first(node) else [0, 1, 3, 5, 2, 4]
    return layout.reshape(
        b,
        layout.transpose(b, split, order),
        [n, b.facts.simplify(ex.mul(c, block * block)), rows, columns],
    )


def _depth_first(node: Node) -> bool:
    mode = node.attr("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        node.fail(f"the mode {mode!r} is neither DCR nor CRD", reason="attribute")
    return bool(mode == "DCR")


_INTERPOLATIONS = {name: Interpolation(kind) for name, kind in (
    ("nearest", "nearest"), ("linear", "linear"), ("bilinear", "linear"), ("cubic", "cubic"),
    ("bicubic", "cubic"),
)}  # fmt: skip


@op("GridSample", since=16)
def grid_sample(b: Builder, node: Node) -> Value:
    """An image read at a grid of coordinates."""
    mode, padding = node.attr("mode", "linear"), node.attr("padding_mode", "zeros")
    if mode not in _INTERPOLATIONS or padding not in set(sample.Edge):
        node.fail(f"mode {mode!r} with padding_mode {padding!r} is not known", reason="attribute")
    corners = bool(node.attr("align_corners", 0))
    return sample.grid_sample(
        b, node.value(0), node.value(1), _INTERPOLATIONS[mode], sample.Edge(padding), corners
    )


@op("AffineGrid", since=20)
def affine_grid(b: Builder, node: Node) -> Value:
    """A grid of coordinates for GridSample."""
    theta = node.value(0)
    n, _, *spatial = node.known_extents(1, "size").scalars()
    b.same(theta.shape[0], n, f"size has a batch of {n}, theta one of {theta.shape[0]}")
    return sample.affine_grid(b, theta, spatial, bool(node.attr("align_corners", 0)))


@op("DeformConv", since=19)
def deform_conv(b: Builder, node: Node) -> Value:
    """Convolution with its taps moved."""
    x, weight, offset = node.value(0), node.value(1), node.value(2)
    window = Window.of(
        kernel_of(b, node, weight),
        node.attr("strides", None),
        node.attr("dilations", None),
        node.attr("pads", None),
    )
    groups, offset_groups = node.attr("group", 1), node.attr("offset_group", 1)
    return sample.deform_conv(
        b, x, weight, offset, node.optional(3), node.optional(4), window, groups, offset_groups
    )


@op("RoiAlign", since=10)
def roi_align(b: Builder, node: Node) -> Value:
    """Regions sampled bilinearly."""
    mode = node.attr("mode", "avg")
    aligned = (
        node.opset >= 16
        and node.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    )
    if mode not in ("avg", "max"):
        node.fail(f"the mode {mode!r} is neither avg nor max", reason="attribute")
    size = (node.attr("output_height", 1), node.attr("output_width", 1))
    spec = roi.RoiAlign(
        size,
        node.attr("spatial_scale", 1.0),
        node.attr("sampling_ratio", 0),
        aligned,
        mode == "max",
    )
    x = node.value(0)
    limit_values(b, node, 2, 0, ex.sub(x.shape[0], 1))
    _limit_regions(b, node, x.shape[2:], spec.scale, first=0)
    return roi.roi_align(b, node.value(0), node.value(1), node.value(2), spec)


def _limit_regions(
    b: Builder, node: Node, extents: Sequence[Extent], scale: float, first: int
) -> None:
    """State that the corners x1, y1, x2, y2 of the regions in input 1, from the coordinate `first`
    on, lie in the image, the second one not before the first: other regions are empty.
    """
    for axis, extent in enumerate(reversed(extents)):
        middle = ex.floordiv(extent, 2)
        for corner, ends in enumerate(((0, middle), (middle, extent))):
            coordinate = first + 2 * corner + axis
            more = {"scale": 1 / scale, "integral": False} if scale else {"integral": False}
            limit_values(b, node, 1, *ends, coordinate=coordinate, **more)


@op("MaxRoiPool")
def max_roi_pool(b: Builder, node: Node) -> Value:
    """The greatest element in each bin of each region."""
    height, width = node.attr("pooled_shape")
    x, scale = node.value(0), node.attr("spatial_scale", 1.0)
    limit_values(b, node, 1, 0, ex.sub(x.shape[0], 1), coordinate=0)
    _limit_regions(b, node, x.shape[2:], scale, first=1)
    return roi.max_roi_pool(b, x, node.value(1), (height, width), scale)


@op("MaxUnpool", since=9)
def max_unpool(b: Builder, node: Node) -> Value:
    """Elements put back where MaxPool's indices say, zeros elsewhere."""
    window = Window.of(
        node.attr("kernel_shape"), node.attr("strides", None), None, node.attr("pads", None)
    )
    shape: Sequence[Extent] | None = (
        node.known_extents(2, "unpooled").scalars() if node.has(2) else None
    )
    x = node.value(0)
    pooled = [*x.shape[:2], *unpool.unpool_extents(b, window, x.shape[2:])]
    limit_values(b, node, 1, 0, ex.sub(ex.prod(pooled), 1))
    return unpool.max_unpool(b, x, node.value(1), window, shape)


@op("Col2Im", since=18)
def col2im(b: Builder, node: Node) -> Value:
    """Columns of blocks added up to an image."""
    image, block = (
        node.known_extents(index, name).scalars() for index, name in ((1, "image"), (2, "block"))
    )
    window = Window.of(
        block, node.attr("strides", None), node.attr("dilations", None), node.attr("pads", None)
    )
    return unpool.col2im(b, node.value(0), image, window)
