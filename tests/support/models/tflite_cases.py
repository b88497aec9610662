"""One TFLite operator at a time, in floats, int8 and uint8, with inputs that the caller draws."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.models.tflite_files import Op, T, encode

IMAGE = (-1, 6, 7, 5)
_SIDES = {"int8": 0, "uint8": 128}
"""What is added to a zero point of int8."""


@dataclass(frozen=True)
class Case:
    """A file of one operator; fixed: inputs that are not sampled."""

    label: str
    tensors: tuple[T, ...]
    op: Op
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Write the file: constants apart, what the operator reads is an input."""
        read = [t.name for t in self.tensors if t.data is None and t.name in self.op.inputs]
        return encode(self.tensors, [self.op], read, list(self.op.outputs))

    def draw(self, samples: int, seed: int) -> list[np.ndarray[Any, Any]]:
        """Inputs in order, of so many samples."""
        rng = np.random.default_rng(seed)
        arrays = []
        for t in self.tensors:
            if t.data is not None or t.name not in self.op.inputs:
                continue
            shape = [samples if size < 0 else size for size in t.shape]
            if t.name in self.fixed:
                arrays.append(np.asarray(self.fixed[t.name], t.dtype))
            elif t.dtype == "float32":
                arrays.append((rng.normal(size=shape) * 3).astype(np.float32))
            elif t.dtype == "bool":
                arrays.append(rng.integers(0, 2, shape).astype(bool))
            else:
                info = np.iinfo(t.dtype)
                low, high = (info.min, info.max + 1) if info.bits == 8 else (-20, 20)
                arrays.append(rng.integers(low, high, shape).astype(t.dtype))
        return arrays


def _quantized(name: str, shape: Any, scale: Any, zero: int, dtype: str, **more: Any) -> T:
    return T(name, shape, dtype, scale=scale, zero=zero + _SIDES[dtype], **more)


def cases() -> Iterator[Case]:
    """Every family of operators, quantized ones with several scales and activations."""
    rng = np.random.default_rng(0)
    yield from _binary()
    yield from _unary()
    yield from _windows(rng)
    yield from _transposed(rng)
    yield from _matmuls(rng)
    yield from _reductions()
    yield from _movements()
    yield from _resizes()


def _binary() -> Iterator[Case]:
    for name in ("ADD", "SUB", "MUL"):
        for activation in range(4):
            options = {"activation": activation}
            op = Op(name, ["x", "y"], ["z"], options)
            yield Case(f"{name} {activation}", (T("x", IMAGE), T("y", (5,)), T("z", IMAGE)), op)
            for dtype in _SIDES:
                tensors = (
                    _quantized("x", IMAGE, 0.05, 3, dtype),
                    _quantized("y", (5,), 0.031, -7, dtype),
                    _quantized("z", IMAGE, 0.08, 11, dtype),
                )
                yield Case(
                    f"{name} {dtype} {activation}", tensors, Op(name, ["x", "y"], ["z"], options, 2)
                )
    divisors = {"y": [3, -2, 5, -7, 1]}
    for name in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        op = Op(name, ["x", "y"], ["z"], {}, 2 if name != "DIV" else 1)
        yield Case(name, (T("x", IMAGE), T("y", (5,)), T("z", IMAGE)), op)
        integers = tuple(T(n, s, "int32") for n, s in (("x", IMAGE), ("y", (5,)), ("z", IMAGE)))
        yield Case(f"{name} int32", integers, op, divisors)
    for name in ("EQUAL", "NOT_EQUAL", "LESS", "GREATER_EQUAL"):
        op = Op(name, ["x", "y"], ["z"], {}, 2)
        x, y = _quantized("x", IMAGE, 0.05, 3, "int8"), _quantized("y", IMAGE, 0.021, -8, "int8")
        yield Case(f"{name} int8", (x, y, T("z", IMAGE, "bool")), op)


_RANGES = {"LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}
"""Scales and zero points that outputs must have."""


def _unary() -> Iterator[Case]:
    for name in ("LOGISTIC", "TANH", "RELU", "RELU6", "LEAKY_RELU", "HARD_SWISH"):
        options = {"alpha": 0.3} if name == "LEAKY_RELU" else {}
        yield Case(name, (T("x", IMAGE), T("z", IMAGE)), Op(name, ["x"], ["z"], options))
        for dtype in _SIDES:
            for scale in (0.05, 0.11, 0.0071):
                out, zero = _RANGES.get(name, (0.043, -9))
                version = 1 if name == "HARD_SWISH" else 2
                tensors = (
                    _quantized("x", IMAGE, scale, 5, dtype),
                    _quantized("z", IMAGE, out, zero, dtype),
                )
                op = Op(name, ["x"], ["z"], options, version)
                yield Case(f"{name} {dtype} {scale}", tensors, op)
    for scale in (0.05, 0.2):
        tensors = (
            _quantized("x", IMAGE, scale, 3, "int8"),
            _quantized("z", IMAGE, 1 / 256, -128, "int8"),
        )
        yield Case(f"SOFTMAX int8 {scale}", tensors, Op("SOFTMAX", ["x"], ["z"], {"beta": 1.0}, 2))
    for dtype in _SIDES:
        tensors = (T("x", IMAGE), _quantized("z", IMAGE, 0.05, 3, dtype))
        yield Case(f"QUANTIZE {dtype}", tensors, Op("QUANTIZE", ["x"], ["z"]))
        x, z = _quantized("x", IMAGE, 0.05, 3, "int8"), _quantized("z", IMAGE, 0.031, 11, dtype)
        yield Case(f"QUANTIZE int8 to {dtype}", (x, z), Op("QUANTIZE", ["x"], ["z"], {}, 2))
    tensors = (_quantized("x", IMAGE, 0.05, 3, "int8"), T("z", IMAGE))
    yield Case("DEQUANTIZE", tensors, Op("DEQUANTIZE", ["x"], ["z"], {}, 2))
    yield Case("L2", (T("x", IMAGE), T("z", IMAGE)), Op("L2_NORMALIZATION", ["x"], ["z"], {}))


_WINDOWS = (
    (0, 0, (1, 1), (1, 1), (3, 3)),
    (1, 1, (2, 1), (1, 1), (3, 2)),
    (3, 0, (2, 3), (1, 1), (5, 4)),
    (0, 0, (1, 1), (2, 3), (3, 3)),
)
"""Activation, padding, strides, dilations, kernel."""


def _extents(shape: Any, padding: int, strides: Any, dilations: Any, kernel: Any) -> list[int]:
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return [
        -(-size // step) if padding == 0 else (size - window) // step + 1
        for size, step, window in zip(shape[1:3], strides, reach, strict=True)
    ]


def _windows(rng: Any) -> Iterator[Case]:
    image = (-1, 11, 13, 4)
    for activation, padding, strides, dilations, kernel in _WINDOWS:
        options = {
            "padding": padding, "stride_w": strides[1], "stride_h": strides[0],
            "activation": activation,
        }  # fmt: skip
        extents = _extents(image, padding, strides, dilations, kernel)
        conv = {**options, "dilation_w": dilations[1], "dilation_h": dilations[0]}
        yield from _convolutions(rng, image, kernel, extents, conv)
        if dilations != (1, 1):
            continue
        pool = {**options, "filter_height": kernel[0], "filter_width": kernel[1]}
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            out = (-1, *extents, 4)
            yield Case(
                f"{name} {kernel}", (T("x", image), T("z", out)), Op(name, ["x"], ["z"], pool)
            )
            for dtype in _SIDES:
                tensors = tuple(
                    _quantized(n, s, 0.05, 3, dtype) for n, s in (("x", image), ("z", out))
                )
                yield Case(f"{name} {dtype} {kernel}", tensors, Op(name, ["x"], ["z"], pool, 2))
    yield from _pools_of_whole_images(image)


def _pools_of_whole_images(image: Any) -> Iterator[Case]:
    """Pools whose one window is the image, padded or not."""
    for padding, dtype in itertools.product((0, 1), _SIDES):
        options = {
            "padding": padding, "stride_w": 13, "stride_h": 11, "activation": 1,
            "filter_height": 11, "filter_width": 13,
        }  # fmt: skip
        tensors = tuple(
            _quantized(n, s, 0.05, -3, dtype) for n, s in (("x", image), ("z", (-1, 1, 1, 4)))
        )
        label = f"AVERAGE_POOL_2D {dtype} whole {padding}"
        yield Case(label, tensors, Op("AVERAGE_POOL_2D", ["x"], ["z"], options, 2))


def _convolutions(rng: Any, image: Any, kernel: Any, extents: Any, options: Any) -> Iterator[Case]:
    for name, channels in (("CONV_2D", 6), ("DEPTHWISE_CONV_2D", 8)):
        deep = name == "CONV_2D"
        shape = (channels, *kernel, 4) if deep else (1, *kernel, channels)
        more = options if deep else {**options, "depth_multiplier": 2}
        op, out = Op(name, ["x", "w", "b"], ["z"], more, 3), (-1, *extents, channels)
        label = f"{name} {kernel} {options['dilation_w']}"
        yield Case(
            label,
            (
                T("x", image),
                T("w", shape, data=rng.normal(size=shape)),
                T("b", (channels,), data=rng.normal(size=channels)),
                T("z", out),
            ),
            op,
        )
        for dtype, scale in (("int8", rng.uniform(0.002, 0.01, channels)), ("uint8", 0.0041)):
            zero, low = (0, -127) if dtype == "int8" else (-7, 0)
            weights = rng.integers(low, low + 255, shape)
            tensors = (
                _quantized("x", image, 0.05, 3, dtype),
                _quantized("w", shape, scale, zero, dtype, data=weights, axis=0 if deep else 3),
                T("b", (channels,), "int32", rng.integers(-2000, 2000, channels),
                  np.float32(0.05) * np.float32(scale)),
                _quantized("z", out, 0.21, -11, dtype),
            )  # fmt: skip
            version = 3 if dtype == "int8" else 2
            yield Case(f"{label} {dtype}", tensors, Op(name, ["x", "w", "b"], ["z"], more, version))


def _transposed(rng: Any) -> Iterator[Case]:
    for padding, size in ((0, (22, 26)), (1, (24, 28))):
        options = {"padding": padding, "stride_w": 2, "stride_h": 2, "activation": 0}
        op = Op("TRANSPOSE_CONV", ["s", "w", "x", "b"], ["z"], options, 3)
        shape, out = _ints("s", [1, *size, 6]), (1, *size, 6)
        image, window = (1, 11, 13, 4), (6, 4, 4, 4)
        weights = rng.integers(-127, 128, window)
        floats = (
            shape,
            T("w", window, data=weights * 0.01),
            T("x", image),
            T("b", (6,), data=rng.normal(size=6)),
            T("z", out),
        )
        yield Case(f"TRANSPOSE_CONV {padding}", floats, op)
        for dtype, scale in (("int8", rng.uniform(0.002, 0.01, 6)), ("uint8", 0.004)):
            zero = 0 if dtype == "int8" else -7
            data = weights if dtype == "int8" else weights + 128
            integers = (
                shape,
                _quantized("w", window, scale, zero, dtype, data=data),
                _quantized("x", image, 0.05, 3, dtype),
                T("b", (6,), "int32", rng.integers(-900, 900, 6), 0.05 * np.float32(scale)),
                _quantized("z", out, 0.21, -11, dtype),
            )
            yield Case(f"TRANSPOSE_CONV {dtype} {padding}", integers, op)


def _matmuls(rng: Any) -> Iterator[Case]:
    shape = (6, 20)
    bias = T("b", (6,), data=rng.normal(size=6))
    op = Op("FULLY_CONNECTED", ["x", "w", "b"], ["z"], {"activation": 1})
    x, z = T("x", (-1, 20)), T("z", (-1, 6))
    yield Case("FULLY_CONNECTED", (x, T("w", shape, data=rng.normal(size=shape)), bias, z), op)
    for label, scale in (("by tensor", 0.005), ("by channel", rng.uniform(0.002, 0.01, 6))):
        weights = rng.integers(-127, 128, shape)
        w = _quantized("w", shape, scale, 0, "int8", data=weights)
        b = T("b", (6,), "int32", rng.integers(-999, 999, 6), np.float32(scale) * np.float32(0.05))
        ends = (
            _quantized("x", (-1, 20), 0.05, 4, "int8"),
            _quantized("z", (-1, 6), 0.1, -3, "int8"),
        )
        yield Case(
            f"FULLY_CONNECTED int8 {label}",
            (ends[0], w, b, ends[1]),
            Op(op.name, op.inputs, op.outputs, op.options, 5),
        )
        for asymmetric in (False, True):
            options = {"activation": 1, "asymmetric": asymmetric}
            mixed = Op(op.name, op.inputs, op.outputs, options, 9)
            yield Case(f"FULLY_CONNECTED floats {label} {asymmetric}", (x, w, bias, z), mixed)
    left, right, out = (-1, 3, 7, 5), (-1, 3, 5, 4), (-1, 3, 7, 4)
    op = Op("BATCH_MATMUL", ["x", "y"], ["z"], {}, 2)
    tensors = (
        _quantized("x", left, 0.05, 3, "int8"),
        _quantized("y", right, 0.03, -9, "int8"),
        _quantized("z", out, 0.1, 5, "int8"),
    )
    yield Case("BATCH_MATMUL int8", tensors, op)


def _reductions() -> Iterator[Case]:
    for name in ("MEAN", "REDUCE_MAX", "REDUCE_MIN"):
        for axes, out in (([1, 2], (-1, 5)), ([3], (-1, 6, 7))):
            op, axis = Op(name, ["x", "a"], ["z"], {}, 2), T("a", (len(axes),), "int32", axes)
            yield Case(f"{name} {axes}", (T("x", IMAGE), axis, T("z", out)), op)
            scale, zero = (0.061, -7) if name == "MEAN" else (0.05, 3)
            for dtype in _SIDES:
                x, z = (
                    _quantized("x", IMAGE, 0.05, 3, dtype),
                    _quantized("z", out, scale, zero, dtype),
                )
                yield Case(f"{name} {dtype} {axes}", (x, axis, z), op)
    axis = T("a", (), "int32", 3)
    op = Op("ARG_MAX", ["x", "a"], ["z"], {"dtype": "int32"})
    yield Case("ARG_MAX", (T("x", IMAGE), axis, T("z", (-1, 6, 7), "int32")), op)
    tensors = (
        T("x", IMAGE),
        T("k", (), "int32", 3),
        T("z", (-1, 6, 7, 3)),
        T("i", (-1, 6, 7, 3), "int32"),
    )
    yield Case("TOPK_V2", tensors, Op("TOPK_V2", ["x", "k"], ["z", "i"]))


def _ints(name: str, values: Any) -> T:
    return T(name, np.shape(values), "int32", values)


def _movements() -> Iterator[Case]:
    x = T("x", IMAGE)
    widths = _ints("p", [[0, 0], [1, 2], [0, 3], [2, 1]])
    padded = (-1, 9, 10, 8)
    yield Case("PAD", (x, widths, T("z", padded)), Op("PAD", ["x", "p"], ["z"]))
    ends = (_quantized("x", IMAGE, 0.05, 3, "int8"), _quantized("z", padded, 0.05, 3, "int8"))
    yield Case("PAD int8", (ends[0], widths, ends[1]), Op("PAD", ["x", "p"], ["z"], {}, 2))
    for mode in (0, 1):
        op = Op("MIRROR_PAD", ["x", "p"], ["z"], {"mode": mode})
        yield Case(f"MIRROR_PAD {mode}", (x, widths, T("z", padded)), op)
    parts = (
        _quantized("x", IMAGE, 0.05, 2, "uint8"),
        _quantized("y", (-1, 6, 7, 2), 0.07, -29, "uint8"),
        _quantized("z", (-1, 6, 7, 7), 0.061, -7, "uint8"),
    )
    yield Case("CONCATENATION uint8", parts, Op("CONCATENATION", ["x", "y"], ["z"], {"axis": 3}))
    splits = (
        x,
        _ints("s", [2, -1, 1]),
        _ints("a", 3),
        T("p", (-1, 6, 7, 2)),
        T("q", (-1, 6, 7, 2)),
        T("r", (-1, 6, 7, 1)),
    )
    yield Case("SPLIT_V", splits, Op("SPLIT_V", ["x", "s", "a"], ["p", "q", "r"], {"count": 3}))
    numbers = (_ints("b", [0, -2, 0, 1]), _ints("e", [0, 9, 0, 2]), _ints("s", [1, 1, 1, 1]))
    op = Op(
        "STRIDED_SLICE",
        ["x", "b", "e", "s"],
        ["z"],
        {"begin_mask": 5, "end_mask": 5, "shrink_axis_mask": 10},
        2,
    )
    yield Case("STRIDED_SLICE shrink", (x, *numbers, T("z", (-1, 7))), op)
    numbers = (_ints("b", [0, 0, 0, 1]), _ints("e", [0, 0, 0, 3]), _ints("s", [1, 1, 1, 1]))
    masks = {"begin_mask": 1, "end_mask": 1, "new_axis_mask": 2, "ellipsis_mask": 4}
    op = Op("STRIDED_SLICE", ["x", "b", "e", "s"], ["z"], masks, 4)
    yield Case("STRIDED_SLICE ellipsis", (x, *numbers, T("z", (-1, 1, 6, 7, 2))), op)
    blocks = (_ints("b", [2, 3]), _ints("p", [[1, 1], [0, 2]]))
    op = Op("SPACE_TO_BATCH_ND", ["x", "b", "p"], ["z"], {}, 2)
    yield Case("SPACE_TO_BATCH_ND", (x, *blocks, T("z", (-1, 4, 3, 5))), op)
    ends = (T("x", (-1, 6, 8, 5)), T("z", (-1, 3, 4, 20)))
    yield Case("SPACE_TO_DEPTH", ends, Op("SPACE_TO_DEPTH", ["x"], ["z"], {"block_size": 2}))
    tensors = (x, T("i", (3,), "int32"), T("z", (-1, 6, 3, 5)))
    yield Case("GATHER", tensors, Op("GATHER", ["x", "i"], ["z"], {"axis": 2}), {"i": [6, 0, 3]})
    choice = (T("c", (7, 1), "bool"), x, T("y", (5,)), T("z", IMAGE))
    yield Case("SELECT_V2", choice, Op("SELECT_V2", ["c", "x", "y"], ["z"]))


def _resizes() -> Iterator[Case]:
    for name in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        for corners, centres in ((False, False), (True, False), (False, True)):
            for size in ([12, 14], [9, 4], [1, 20]):
                options = {"align_corners": corners, "half_pixel_centers": centres}
                op, out = Op(name, ["x", "s"], ["z"], options, 3), (-1, *size, 5)
                label = f"{name} {corners} {centres} {size}"
                yield Case(label, (T("x", IMAGE), _ints("s", size), T("z", out)), op)
                ends = [_quantized(n, s, 0.05, 3, "int8") for n, s in (("x", IMAGE), ("z", out))]
                yield Case(f"{label} int8", (ends[0], _ints("s", size), ends[1]), op)
