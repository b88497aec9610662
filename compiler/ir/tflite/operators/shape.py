"""Operators that move elements."""

from typing import Any

import numpy as np

from compiler.ir.tflite.node import LARGEST, Node
from compiler.ir.tflite.registry import op
from compiler.ir.tflite.rescaling import limits_of, look_up

_REFLECT, _SYMMETRIC = 0, 1


@op("RESHAPE")
def reshape(node: Node) -> str:
    """Another shape for the same elements."""
    shape = node.find_constant(1) if node.has(1) else None
    if shape is None and node.operator.new_shape is not None:
        shape = np.array(node.operator.new_shape)
    if shape is None:
        return str(node.put("Reshape", node.x(), node.ints(1), allowzero=1))
    sizes = [int(size) for size in shape.reshape(-1)]
    samples = node.tensor(0).shape[:1]
    if sizes[:1] == [1] == list(samples) and -1 not in sizes:
        # Converted for one sample: as many as the input has, where the caller declares more.
        return str(node.put("Reshape", node.x(), node.const([0, *sizes[1:]], "int64")))
    return str(node.put("Reshape", node.x(), node.const(sizes, "int64"), allowzero=1))


@op("TRANSPOSE")
def transpose(node: Node) -> str:
    """Another order of axes."""
    order = node.constant(1, "the order of axes").reshape(-1).tolist()
    if sorted(order) != list(range(node.rank())):
        node.fail(f"the order {order} of {node.rank()} axes", reason="axis")
    return node.transpose(node.x(), *order)


@op("SQUEEZE")
def squeeze(node: Node) -> str:
    """Axes of one position removed."""
    axes = list(node.operator.new_shape or ())
    axes = axes or [axis for axis, size in enumerate(node.tensor(0).shape) if size == 1]
    return str(node.put("Squeeze", node.x(), node.const(axes, "int64")))


@op("EXPAND_DIMS")
def expand_dims(node: Node) -> str:
    """An axis of one position added."""
    axis = node.axis(node.integer(1, "the axis"), node.rank() + 1)
    return str(node.put("Unsqueeze", node.x(), node.const([axis], "int64")))


def _fill(node: Node) -> str:
    """The value of padding: 0, as the output's integers have it."""
    zero = node.scalar_grid(node.output)[1] if node.is_quantized() else 0
    return node.const(zero, node.tensor(0).dtype)


@op("PAD", "PADV2")
def pad(node: Node) -> str:
    """Constants around a tensor."""
    value = node.x(2) if node.operator.name == "PADV2" else _fill(node)
    if node.operator.name == "PADV2" and node.rank(2):
        value = node.put("Reshape", value, node.const([], "int64"))
    return str(node.put("Pad", node.x(), _widths(node), value))


def _widths(node: Node) -> str:
    """Widths before all axes, then behind them."""
    known = node.find_constant(1)
    if known is not None:
        if known.shape != (node.rank(), 2):
            node.fail(f"paddings of shape {known.shape}", reason="shape")
        return node.const(known.T.reshape(-1), "int64")
    return str(node.put("Reshape", node.transpose(node.ints(1), 1, 0), node.const([-1], "int64")))


@op("MIRROR_PAD")
def mirror_pad(node: Node) -> str:
    """A tensor continued by its mirror image, without or with the edge itself."""
    if node.option("mode") == _REFLECT:
        return str(node.put("Pad", node.x(), _widths(node), mode="reflect"))
    widths = node.constant(1, "the padding")
    if widths.shape != (node.rank(), 2) or (widths < 0).any():
        node.fail(f"paddings {widths.tolist()}", reason="shape")
    x = node.x()
    for axis, (before, behind) in enumerate(widths.tolist()):
        first = _slice(node, x, axis, before - 1, -LARGEST, -1) if before else None
        last = _slice(node, x, axis, -1, -behind - 1, -1) if behind else None
        parts = [part for part in (first, x, last) if part is not None]
        x = node.put("Concat", *parts, axis=axis) if len(parts) > 1 else x
    return x


def _slice(node: Node, x: str, axis: int, start: int, stop: int, step: int = 1) -> str:
    numbers = (node.const([number], "int64") for number in (start, stop, axis, step))
    return str(node.put("Slice", x, *numbers))


@op("CONCATENATION")
def concatenation(node: Node) -> str:
    """Tensors behind each other on an axis; bytes of other scales are brought to the output's."""
    parts = [
        _to_output(node, index) if node.is_quantized(index) else node.x(index)
        for index in range(len(node.inputs))
    ]
    y = node.put("Concat", *parts, axis=node.axis(node.option("axis"), node.rank()))
    if node.option("activation") and node.is_quantized():
        node.refuse_activation()
    return node.activate(str(y))


def _to_output(node: Node, index: int) -> str:
    tensor, output = node.tensor(index), node.output
    if node.scalar_grid(tensor) == node.scalar_grid(output):
        return node.x(index)
    if tensor.dtype != "uint8":
        node.fail("its inputs and its output have different scales", reason="scales")
    (scale, zero), (out, out_zero) = node.scalar_grid(tensor), node.scalar_grid(output)
    from compiler.ir.tflite.fixed_point import round_away

    factor = scale * (np.float32(1) / out)
    shift = np.float32(-zero) * factor
    values = round_away(np.arange(256, dtype=np.float32) * factor + shift) + out_zero
    table = values.clip(*limits_of("uint8")).astype(np.uint8)
    return look_up(node, node.x(index), "uint8", table)


@op("SPLIT")
def split(node: Node) -> list[str]:
    """Equal parts of an axis."""
    count = len(node.outputs)
    axis = node.axis(node.integer(0, "the axis"), node.rank(1))
    if count == 1:
        return [node.put("Identity", node.x(1))]
    return list(node.put("Split", node.x(1), outputs=count, axis=axis, num_outputs=count))


@op("SPLIT_V")
def split_v(node: Node) -> list[str]:
    """Parts of an axis of given sizes, of which one may be the rest."""
    axis = node.axis(node.integer(2, "the axis"), node.rank())
    sizes = node.constant(1, "the sizes").reshape(-1).astype(np.int64)
    if (sizes < 0).any():
        extent = node.tensor(0).shape[axis]
        sizes = np.where(sizes < 0, extent - sizes[sizes >= 0].sum(), sizes)
    if len(sizes) != len(node.outputs) or (sizes < 0).any():
        node.fail(f"parts of {sizes.tolist()} for {len(node.outputs)} outputs", reason="shape")
    if len(sizes) == 1:
        return [node.put("Identity", node.x())]
    return list(node.put("Split", node.x(), node.const(sizes), outputs=len(sizes), axis=axis))


@op("PACK")
def pack(node: Node) -> str:
    """Tensors along a new axis."""
    axis = node.axis(node.option("axis"), node.rank() + 1)
    new_axis = node.const([axis], "int64")
    parts = [node.put("Unsqueeze", node.x(index), new_axis) for index in range(len(node.inputs))]
    return str(node.put("Concat", *parts, axis=axis))


@op("UNPACK")
def unpack(node: Node) -> list[str]:
    """The positions of an axis, without it."""
    axis, count = node.axis(node.option("axis"), node.rank()), len(node.outputs)
    new_axis = node.const([axis], "int64")
    if count == 1:
        return [node.put("Squeeze", node.x(), new_axis)]
    parts = node.put("Split", node.x(), outputs=count, axis=axis, num_outputs=count)
    return [node.put("Squeeze", part, new_axis) for part in parts]


@op("TILE")
def tile(node: Node) -> str:
    """Repetitions along each axis."""
    return str(node.put("Tile", node.x(), node.ints(1)))


@op("BROADCAST_TO")
def broadcast_to(node: Node) -> str:
    """Repetitions up to a shape."""
    return str(node.put("Expand", node.x(), node.ints(1)))


@op("FILL")
def fill(node: Node) -> str:
    """One value in a shape."""
    return str(node.put("Expand", node.x(1), node.ints(0)))


@op("SHAPE")
def shape(node: Node) -> str:
    """The sizes of all axes."""
    sizes = node.put("Shape", node.x())
    return str(sizes) if node.output.dtype == "int64" else node.cast(sizes, node.output.dtype)


@op("RANK")
def rank(node: Node) -> str:
    """The number of axes."""
    return node.const(node.rank(), "int32")


@op("RANGE")
def range_of(node: Node) -> str:
    """Numbers from a start to a limit."""
    scalars = [
        node.put("Reshape", node.x(index), node.const([], "int64"))
        if node.rank(index)
        else node.x(index)
        for index in range(3)
    ]
    return str(node.put("Range", *scalars))


@op("REVERSE_V2")
def reverse(node: Node) -> str:
    """Axes backwards."""
    x = node.x()
    for axis in node.constant(1, "the axis").reshape(-1).tolist():
        x = _slice(node, x, node.axis(axis, node.rank()), -1, -LARGEST, -1)
    return x


@op("REVERSE_SEQUENCE")
def reverse_sequence(node: Node) -> str:
    """The beginning of each sequence backwards."""
    axes = {"time_axis": node.option("seq_dim"), "batch_axis": node.option("batch_dim")}
    if set(axes.values()) != {0, 1}:
        node.fail("sequences on other axes than the first two are not supported", reason="axis")
    return str(node.put("ReverseSequence", node.x(), node.ints(1), **axes))


@op("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def space_and_depth(node: Node) -> str:
    """Blocks of an image as channels, and back."""
    node.require_rank(4)
    size = node.option("block_size")
    if size < 1:
        node.fail(f"blocks of {size}", reason="attribute")
    operator = "SpaceToDepth" if node.operator.name == "SPACE_TO_DEPTH" else "DepthToSpace"
    image = node.to_channels_first(node.x())
    return node.to_channels_last(node.put(operator, image, blocksize=size))


def _blocks(node: Node) -> tuple[list[int], np.ndarray[Any, Any]]:
    """The size of a block along each axis behind the first, and what is padded or cropped there."""
    blocks = [int(size) for size in node.constant(1, "the block").reshape(-1)]
    edges = node.constant(2, "what is padded or cropped")
    if edges.shape != (len(blocks), 2) or min(blocks, default=1) < 1 or (edges < 0).any():
        node.fail(f"blocks of {blocks} with edges {edges.tolist()}", reason="shape")
    if not blocks or node.rank() <= len(blocks):
        node.fail(f"blocks of {blocks} for {node.rank()} axes", reason="shape")
    return blocks, edges


def _sizes(node: Node, x: str, rank: int) -> list[str]:
    sizes = node.put("Shape", x)
    return [_slice(node, sizes, 0, axis, axis + 1) for axis in range(rank)]


@op("SPACE_TO_BATCH_ND")
def space_to_batch(node: Node) -> str:
    """Positions of each block as samples of their own."""
    blocks, edges = _blocks(node)
    rank, count = node.rank(), len(blocks)
    rest = [0] * (rank - count - 1)
    widths = [0, *edges[:, 0], *rest, 0, *edges[:, 1], *rest]
    x = str(node.put("Pad", node.x(), node.const(widths, "int64"), _fill(node)))
    sizes = _sizes(node, x, rank)
    numbers = [node.const([block], "int64") for block in blocks]
    inner = [node.put("Div", size, block) for size, block in zip(sizes[1:], numbers, strict=False)]
    parted = [sizes[0]]
    for size, block in zip(inner, numbers, strict=True):
        parted += [size, block]
    x = node.put("Reshape", x, node.put("Concat", *parted, *sizes[count + 1 :], axis=0))
    steps = [2 + 2 * axis for axis in range(count)]
    blocks_first = [1 + 2 * axis for axis in range(count)]
    x = node.transpose(x, *steps, 0, *blocks_first, *range(2 * count + 1, rank + count))
    samples = node.put("Mul", sizes[0], node.const([int(np.prod(blocks))], "int64"))
    shape = node.put("Concat", samples, *inner, *sizes[count + 1 :], axis=0)
    return str(node.put("Reshape", x, shape))


@op("BATCH_TO_SPACE_ND")
def batch_to_space(node: Node) -> str:
    """Samples as positions of blocks, cropped."""
    blocks, edges = _blocks(node)
    rank, count = node.rank(), len(blocks)
    sizes = _sizes(node, node.x(), rank)
    numbers = [node.const([block], "int64") for block in blocks]
    samples = node.put("Div", sizes[0], node.const([int(np.prod(blocks))], "int64"))
    parted = node.put("Concat", *numbers, samples, *sizes[1:], axis=0)
    x = node.put("Reshape", node.x(), parted)
    order = [count]
    for axis in range(count):
        order += [count + 1 + axis, axis]
    x = node.transpose(x, *order, *range(2 * count + 1, rank + count))
    grown = [node.put("Mul", size, block) for size, block in zip(sizes[1:], numbers, strict=False)]
    x = node.put("Reshape", x, node.put("Concat", samples, *grown, *sizes[count + 1 :], axis=0))
    for axis, (before, behind) in enumerate(edges.tolist(), 1):
        if before or behind:
            x = _slice(node, x, axis, before, -behind if behind else LARGEST)
    return x
