"""Convolutions and matmuls, of floats, of integers, and of floats by integer weights."""

from typing import Any

import numpy as np

from compiler.ir.tflite.file import Quantization
from compiler.ir.tflite.node import Node
from compiler.ir.tflite.registry import op
from compiler.ir.tflite.rescaling import activation_limits, requantize

Array = np.ndarray[Any, Any]
SAME, VALID = 0, 1


def window_attributes(node: Node, kernel: tuple[int, int]) -> dict[str, Any]:
    """The attributes of an ONNX window for one of TFLite's."""
    strides = [node.option("stride_h"), node.option("stride_w")]
    dilations = [node.operator.options.get(f"dilation_{axis}", 1) for axis in "hw"]
    if min(*strides, *dilations, *kernel) < 1:
        node.fail(f"a window of {kernel} by strides {strides} and dilations {dilations}")
    attributes = {"kernel_shape": list(kernel), "strides": strides, "dilations": dilations}
    if padding_of(node) == "VALID" or max(dilations) == 1:
        return {**attributes, "auto_pad": padding_of(node)}
    if max(strides) > 1:
        node.fail("dilations together with strides are not supported", reason="dilation")
    # At a stride of 1, padding does not depend on the image; ONNX Runtime takes none by name here.
    widths = [(size - 1) * step for size, step in zip(kernel, dilations, strict=True)]
    before = [width // 2 for width in widths]
    behind = [width - first for width, first in zip(widths, before, strict=True)]
    return {**attributes, "pads": [*before, *behind]}


def padding_of(node: Node) -> str:
    """ONNX's name of the padding."""
    names = {SAME: "SAME_UPPER", VALID: "VALID"}
    padding = node.option("padding")
    if padding not in names:
        node.fail(f"the padding {padding} is none", reason="attribute")
    return names[padding]


def _grid_by_channel(node: Node, channels: int, axis: int) -> Quantization:
    """The scales of the weights, one or one for each output channel."""
    grid = node.grid(node.tensor(1))
    if not grid.by_tensor and (grid.axis != axis or grid.scale.size != channels):
        node.fail(
            f"weights have {grid.scale.size} scales on axis {grid.axis}, they must be on axis "
            f"{axis}",
            reason="scales",
        )
    return grid


def _factors(node: Node, grid: Quantization, in_double: bool, data: int = 0) -> Array:
    """The factors of accumulators, in double; the product of scales is one of floats where
    TFLite computes it so.
    """
    scale, _ = node.scalar_grid(node.tensor(data))
    out, _ = node.scalar_grid(node.output)
    if in_double:
        return np.float64(scale) * grid.scale.astype(np.float64) / np.float64(out)
    return (scale * grid.scale).astype(np.float64) / np.float64(out)


def _weight_zero(node: Node, grid: Quantization) -> str:
    """The zero point of the weights, left out where it is 0: ONNX Runtime replaces it where it is
    given, which fails for one that several nodes share.
    """
    dtype = node.tensor(1).dtype
    if not grid.zero.any():
        return ""
    if (grid.zero == grid.zero[0]).all():
        return node.const(grid.zero[0], dtype)
    node.fail("weights of several zero points are not supported", reason="zero_points")
    raise AssertionError


def _x_zero(node: Node, data: int = 0) -> str:
    return node.const(node.scalar_grid(node.tensor(data))[1], node.tensor(data).dtype)


def _convolve(node: Node, weight: Array, groups: int, axis: int) -> str:
    """The convolution of the first input by weights [O, I, H, W], biased and activated; axis: that
    of output channels in the file's weights.
    """
    channels, x = weight.shape[0], node.to_channels_first(node.x())
    window = {**window_attributes(node, weight.shape[2:]), "group": groups}
    if node.is_quantized():
        node.require_bytes(0, 1)
        grid = _grid_by_channel(node, channels, axis)
        total = node.put(
            "ConvInteger", x, node.const(weight), _x_zero(node), _weight_zero(node, grid), **window
        )
        if node.has(2):
            total = node.put("Add", total, _bias(node, channels, (-1, 1, 1)))
        limits = activation_limits(node, node.output, node.option("activation"))
        factors = _factors(node, grid, node.tensor(0).dtype == "int8")
        y = requantize(node, total, factors, 4, axis=1, output=node.output, limits=limits)
        return node.to_channels_last(y)
    if weight.dtype.kind in "iu":
        y = _convolve_hybrid(node, x, weight, axis, window)
    else:
        y = node.put("Conv", x, node.const(weight), **window)
    if node.has(2):
        y = node.put("Add", y, _bias(node, channels, (-1, 1, 1)))
    return node.to_channels_last(node.activate(y))


def _bias(node: Node, channels: int, shape: tuple[int, ...], index: int = 2) -> str:
    data = node.find_constant(index)
    if data is None:
        return str(node.put("Reshape", node.x(index), node.const(shape, "int64")))
    if data.size != channels:
        node.fail(f"the bias has {data.size} elements for {channels} channels", reason="shape")
    return node.const(data.reshape(shape))


def _convolve_hybrid(node: Node, x: str, weight: Array, axis: int, window: dict[str, Any]) -> str:
    """Floats by integer weights, as TFLite does it: each sample is quantized by its range, which
    has its own zero point where weights have a scale for each channel.
    """
    grid, zero = _grid_by_channel(node, weight.shape[0], axis), None
    if grid.by_tensor and node.operator.name == "CONV_2D":
        integers, scale = _quantize_samples(node, x, 4)
    else:
        integers, zero, scale = _quantize_asymmetrically(node, x, 4)
    total = node.put("ConvInteger", integers, node.const(weight), **window)
    if zero is not None:
        # Padding is no element, so that zero points count for those of the image alone.
        totals = weight.sum(1, dtype=np.float32, keepdims=True)
        reached = node.put(
            "Conv", plane_of_ones(node, x), node.const(totals), **{**window, "group": 1}
        )
        total = _subtract(node, total, reached, zero)
    return _scale_back(node, total, scale, grid.scale.reshape((-1, 1, 1)))


def _subtract(node: Node, total: str, totals: str, zero: str) -> str:
    """Int32 accumulators less the zero points times totals of weights."""
    correction = node.put("Mul", node.cast(totals, "int32"), zero)
    return str(node.put("Sub", total, correction))


def plane_of_ones(node: Node, x: str) -> str:
    """Float32 ones in the height and width of an image with channels first."""
    sizes = node.put("Concat", node.const([1, 1], "int64"), node.put("Shape", x, start=2), axis=0)
    return str(node.put("Expand", node.const(1, "float32"), sizes))


def _quantize_samples(node: Node, x: str, rank: int) -> tuple[str, str]:
    """Floats as int8 by one scale for each position on the first axis, and the scales: the greatest
    magnitude is 127.
    """
    axes = node.const(range(1, rank), "int64")
    most = node.put("ReduceMax", node.put("Abs", x), axes, keepdims=1)
    nothing = node.put("Equal", most, node.const(0, "float32"))
    reach = node.put("Where", nothing, node.const(1, "float32"), most)
    inverse = node.put("Div", node.const(127, "float32"), reach)
    integers = node.put("RoundAway", node.put("Mul", x, inverse))
    return (
        node.cast(node.clip(integers, -127, 127), "int8"),
        node.put("Div", reach, node.const(127, "float32")),
    )


def _quantize_asymmetrically(node: Node, x: str, rank: int) -> tuple[str, str, str]:
    """Floats as int8, with an int32 zero point and a scale for each position on the first axis, so
    that its range with 0 is 255 wide.
    """
    axes, zero = node.const(range(1, rank), "int64"), node.const(0, "float64")
    low, high = (
        node.put(pick, node.cast(node.put(reduce, x, axes, keepdims=1), "float64"), zero)
        for reduce, pick in (("ReduceMin", "Min"), ("ReduceMax", "Max"))
    )
    width = node.put("Sub", high, low)
    nothing = node.put("Equal", width, zero)
    step = node.put("Div", width, node.const(255, "float64"))
    scale = node.put("Where", nothing, node.const(1, "float64"), step)
    below, above = node.put("Div", low, scale), node.put("Div", high, scale)
    lower, upper = node.const(-128, "float64"), node.const(127, "float64")
    # The zero point from the end whose rounding error is the smaller.
    nearer = node.put(
        "Less",
        node.put("Sub", node.const(128, "float64"), below),
        node.put("Add", upper, above),
    )
    exact = node.put("Where", nearer, node.put("Sub", lower, below), node.put("Sub", upper, above))
    origin = node.put("RoundAway", node.put("Max", node.put("Min", exact, upper), lower))
    origin = node.cast(node.put("Where", nothing, zero, origin), "float32")
    float_scale = node.cast(scale, "float32")
    inverse = node.put("Div", node.const(1, "float32"), float_scale)
    moved = node.put("Add", origin, node.put("Mul", x, inverse))
    integers = node.cast(node.clip(node.put("RoundAway", moved), -128, 127), "int8")
    return integers, node.cast(origin, "int32"), float_scale


def _scale_back(node: Node, total: str, scale: str, weight_scale: Array) -> str:
    scales = node.put("Mul", scale, node.const(weight_scale.astype(np.float32)))
    return str(node.put("Mul", node.cast(total, "float32"), scales))


@op("CONV_2D")
def conv_2d(node: Node) -> str:
    """A convolution, grouped where the weights have fewer input channels than the image."""
    node.require_rank(4)
    node.require_rank(4, 1)
    weight = node.constant(1, "the weight").transpose(0, 3, 1, 2)
    channels = node.tensor(0).shape[3]
    if not weight.size or channels % weight.shape[1]:
        node.fail(f"weights of {weight.shape[1]} channels for an image of {channels}")
    return _convolve(node, weight, channels // weight.shape[1], 0)


@op("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(node: Node) -> str:
    """A convolution of each channel by itself, by one or several kernels."""
    node.require_rank(4)
    node.require_rank(4, 1)
    weight = node.constant(1, "the weight").transpose(3, 0, 1, 2)
    channels = node.tensor(0).shape[3]
    if weight.shape[1] != 1 or channels < 1 or weight.shape[0] % channels:
        node.fail(f"weights of {weight.shape[0]} channels for an image of {channels}")
    return _convolve(node, weight, channels, 3)


@op("TRANSPOSE_CONV")
def transpose_conv(node: Node) -> str:
    """The gradient of a convolution: inputs are the output's shape, weights [O, H, W, I], data."""
    node.require_rank(4, 1)
    node.require_rank(4, 2)
    if node.is_quantized(2):
        return _transpose_integers(node)
    if node.is_quantized(1):
        node.fail("floats by integer weights are not supported", reason="unsupported_dtype")
    weight = node.constant(1, "the weight").transpose(3, 0, 1, 2)
    sizes = node.constant(0, "the output's shape").reshape(-1)
    if sizes.size != 4:
        node.fail(f"the output's shape has {sizes.size} axes", reason="shape")
    window = window_attributes(node, weight.shape[2:])
    window |= {"output_shape": sizes[1:3].tolist(), "auto_pad": "SAME_UPPER"}
    y = node.put("ConvTranspose", node.to_channels_first(node.x(2)), node.const(weight), **window)
    if node.has(3):
        bias = node.constant(3, "the bias")
        y = node.put("Add", y, node.const(bias.reshape(-1, 1, 1)))
    return node.to_channels_last(node.activate(y))


def _transpose_integers(node: Node) -> str:
    """The same of bytes, as a convolution by the turned weights of an image between whose pixels
    there are others that stand for 0.
    """
    node.require_bytes(1, 2)
    weight = node.constant(1, "the weight").transpose(0, 3, 1, 2)[:, :, ::-1, ::-1]
    strides, zero = (node.option("stride_h"), node.option("stride_w")), _x_zero(node, 2)
    grid = _grid_by_channel(node, len(weight), 0)
    total = node.put(
        "ConvInteger",
        node.to_channels_first(_spread_pixels(node, strides, zero)),
        node.const(np.ascontiguousarray(weight)),
        zero,
        _weight_zero(node, grid),
        kernel_shape=list(weight.shape[2:]),
        pads=_transposed_padding(node, weight.shape[2:], strides),
    )
    if node.has(3):
        total = node.put("Add", total, _bias(node, len(weight), (-1, 1, 1), 3))
    limits = activation_limits(node, node.output, node.option("activation"))
    factors = _factors(node, grid, node.tensor(2).dtype == "int8", 2)
    y = requantize(node, total, factors, 4, axis=1, output=node.output, limits=limits)
    return node.to_channels_last(y)


def _spread_pixels(node: Node, strides: tuple[int, int], zero: str) -> str:
    """The image [N, H, W, C] with so many pixels in place of each that all but the first are 0."""
    if min(strides) < 1:
        node.fail(f"strides of {strides}")
    one = node.const([1], "int64")
    sizes = [node.put("Shape", node.x(2), start=axis, end=axis + 1) for axis in range(4)]
    parted = node.put("Concat", *sizes[:2], one, sizes[2], one, sizes[3], axis=0)
    apart = node.put("Reshape", node.x(2), parted)
    widths = [0] * 8 + [strides[0] - 1, 0, strides[1] - 1, 0]
    padded = node.put("Pad", apart, node.const(widths, "int64"), zero)
    grown = [
        node.put("Mul", size, node.const([step], "int64"))
        for size, step in zip(sizes[1:3], strides, strict=True)
    ]
    return str(node.put("Reshape", padded, node.put("Concat", sizes[0], *grown, sizes[3], axis=0)))


def _transposed_padding(node: Node, kernel: tuple[int, int], strides: tuple[int, int]) -> list[int]:
    """The convolution's padding; fails for output sizes that do not follow from the input's."""
    sizes = node.constant(0, "the output's shape").reshape(-1).tolist()
    before, behind = [], []
    for axis, (size, step) in enumerate(zip(kernel, strides, strict=True)):
        have = node.tensor(2).shape[axis + 1]
        same = padding_of(node) != "VALID"
        wanted = have * step if same else (have - 1) * step + size
        if len(sizes) != 4 or sizes[axis + 1] != wanted or size < step:
            node.fail(f"an output of {sizes} by a kernel of {kernel} and strides of {strides}")
        cut = (size - step) // 2 if same else 0
        before.append(size - 1 - cut)
        behind.append(wanted - have * step - before[-1] + size - 1)
    return [*before, *behind]


@op("FULLY_CONNECTED")
def fully_connected(node: Node) -> str:
    """The data as rows by the transpose of weights [O, I]."""
    if node.option("weights_format"):
        node.fail("shuffled weights are not supported", reason="weights_format")
    node.require_rank(2, 1)
    keeps_axes, rank, x = node.option("keep_num_dims"), node.rank(), node.x()
    channels, depth = node.tensor(1).shape
    if rank != 2 and not keeps_axes:
        x = node.put("Reshape", x, node.const([-1, depth], "int64"))
        rank = 2
    if node.is_quantized():
        return _multiply_integers(node, x, rank, channels)
    weight = node.find_constant(1)
    if weight is not None and weight.dtype.kind in "iu":
        y = _multiply_hybrid(node, x, rank, weight)
    else:
        matrix = node.transpose(node.x(1), 1, 0) if weight is None else node.const(weight.T)
        y = node.put("MatMul", x, matrix)
    if node.has(2):
        y = node.put("Add", y, node.x(2))
    return node.activate(y)


def _multiply_hybrid(node: Node, x: str, rank: int, weight: Array) -> str:
    """Floats by integer weights: each row is quantized by its range."""
    grid, zero = _grid_by_channel(node, len(weight), 0), None
    if node.option("asymmetric"):
        integers, zero, scale = _quantize_asymmetrically(node, x, rank)
    else:
        integers, scale = _quantize_samples(node, x, rank)
    total = node.put("MatMulInteger", integers, node.const(weight.T))
    if zero is not None:
        totals = node.const(weight.sum(1, dtype=np.int32))
        total = _subtract(node, total, totals, zero)
    return _scale_back(node, total, scale, grid.scale)


def _multiply_integers(node: Node, x: str, rank: int, channels: int) -> str:
    node.require_bytes(0, 1)
    grid = _grid_by_channel(node, channels, 0)
    weight = node.find_constant(1)
    matrix = node.transpose(node.x(1), 1, 0) if weight is None else node.const(weight.T)
    total = node.put("MatMulInteger", x, matrix, _x_zero(node), _weight_zero(node, grid))
    if node.has(2):
        total = node.put("Add", total, node.x(2))
    limits = activation_limits(node, node.output, node.option("activation"))
    factors = _factors(node, grid, in_double=not grid.by_tensor)
    # TFLite's kernel rounds once here, as opposed to convolutions.
    return requantize(
        node, total, factors, rank, axis=rank - 1, output=node.output, limits=limits, once=True
    )


@op("BATCH_MATMUL")
def batch_matmul(node: Node) -> str:
    """Matrices by matrices, of either side transposed."""
    sides = []
    for index, name in ((0, "adj_x"), (1, "adj_y")):
        rank = node.rank(index)
        order = [*range(rank - 2), rank - 1, rank - 2]
        adjoint = node.option(name)
        sides.append(node.transpose(node.x(index), *order) if adjoint else node.x(index))
    if not node.is_quantized():
        if node.is_quantized(1):
            node.fail("floats by integers are not supported", reason="unsupported_dtype")
        return str(node.put("MatMul", *sides))
    node.require_bytes(0, 1)
    zeros = [
        node.const(node.scalar_grid(node.tensor(i))[1], node.tensor(i).dtype) for i in range(2)
    ]
    total = node.put("MatMulInteger", *sides, *zeros)
    factors = _factors(node, node.grid(node.tensor(1)), in_double=False)
    rank = max(node.rank(0), node.rank(1))
    return requantize(node, total, factors, rank, output=node.output)
