"""Sums of products of small integers by packed weights, as tensor programs; their left side is
float32 that holds integers, or the bytes themselves with a zero point.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from compiler.passes.cpu.families.int8.match import STAGE
from compiler.passes.pack.conv import Window
from compiler.targets.vector_unit import IntegerDot


@dataclass(frozen=True)
class Left:
    """A tensor as it is read: less its zero point where that is one of bytes, in `dtype`."""

    tensor: Any
    zero: int | None = None
    dtype: str = "float32"

    @property
    def shape(self) -> Any:
        """That of the tensor."""
        return self.tensor.shape

    def __getitem__(self, indices: Any) -> Any:
        """One element."""
        element = self.tensor[indices]
        if self.zero is None:
            return element
        return (element.astype("int32") - tirx.const(self.zero, "int32")).astype(self.dtype)


def _locate(k: Any, depth: int, left: Left, instruction: IntegerDot) -> tuple[Any, Any]:
    """In which group row `k` of the depth stands, and where in it."""
    part, neighbours = -(-depth // instruction.group), left.zero is not None or instruction.scalar
    return (k // instruction.group, k % instruction.group) if neighbours else (k % part, k // part)


def integer_matmul(left: Left, packed: Any, columns: int, instruction: IntegerDot) -> Any:
    """The left side [..., K] by a packed matrix [K, columns]."""
    *lead, depth = left.shape
    width = int(packed.shape[2])
    k = te.reduce_axis((0, depth), name="k")
    group, within = _locate(k, int(depth), left, instruction)
    return te.compute(
        (*lead, tirx.IntImm("int64", columns)),
        lambda *index: te.sum(
            left[(*index[:-1], k)]
            * packed[index[-1] // width, group, index[-1] % width, within].astype("float32"),
            axis=k,
        ),
        name=STAGE,
    )


def integer_conv(
    data: Left, packed: Any, columns: int, window: Window, instruction: IntegerDot
) -> Any:
    """The convolution of padded data [N, H, W, C]."""
    channels, (height, width) = int(data.shape[3]), window.kernel
    panel, part = int(packed.shape[2]), -(-channels // instruction.group)
    kh, kw, c = (
        te.reduce_axis((0, extent), name=name)
        for extent, name in ((height, "kh"), (width, "kw"), (channels, "c"))
    )

    group, within = _locate(c, channels, data, instruction)

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        row = (kh * width + kw) * part + group
        return te.sum(
            window.read(data, n, y, x, kh, kw, c)
            * packed[o // panel, row, o % panel, within].astype("float32"),
            axis=[kh, kw, c],
        )

    return te.compute(
        (data.shape[0], *window.size(data.shape[1], data.shape[2]), tirx.IntImm("int64", columns)),
        element,
        name=STAGE,
    )


def integer_conv_of_rows(
    data: Left, packed: Any, columns: int, window: Window, instruction: IntegerDot
) -> Any:
    """`integer_conv`, with columns and channels of the window as one axis."""
    channels, (height, width) = int(data.shape[3]), window.kernel
    depth, panel = width * channels, int(packed.shape[2])
    kh, k = te.reduce_axis((0, height), name="kh"), te.reduce_axis((0, depth), name="k")
    group, within = _locate(k, depth, data, instruction)
    row = kh * -(-depth // instruction.group) + group

    def element(n: Any, y: Any, x: Any, o: Any) -> Any:
        return te.sum(
            window.read(data, n, y, x, kh, k // channels, k % channels)
            * packed[o // panel, row, o % panel, within].astype("float32"),
            axis=[kh, k],
        )

    return te.compute(
        (data.shape[0], *window.size(data.shape[1], data.shape[2]), tirx.IntImm("int64", columns)),
        element,
        name=STAGE,
    )


def integer_depthwise(data: Left, taps: Any, window: Window) -> Any:
    """The convolution of each channel of data [N, H, W, C] by taps [kh, kw, C], in int32."""
    kh, kw = (
        te.reduce_axis((0, extent), name=name)
        for extent, name in zip(window.kernel, ("kh", "kw"), strict=True)
    )

    def element(n: Any, y: Any, x: Any, c: Any) -> Any:
        return te.sum(
            window.read(data, n, y, x, kh, kw, c) * taps[kh, kw, c].astype("int32"), axis=[kh, kw]
        )

    extents = window.size(data.shape[1], data.shape[2])
    return te.compute((data.shape[0], *extents, data.shape[3]), element, name="depthwise")


def integer_sum(data: Left, axes: Sequence[int], keep: bool) -> Any:
    """The sums of data over some axes, which stay with an extent of 1 or go."""
    rank = len(data.shape)
    summed = {axis % rank: te.reduce_axis((0, data.shape[axis % rank])) for axis in axes}
    shape = [
        tirx.IntImm("int64", 1) if axis in summed else data.shape[axis]
        for axis in range(rank)
        if keep or axis not in summed
    ]

    def element(*index: Any) -> Any:
        rest = iter(index)
        left = [next(rest) if keep or axis not in summed else None for axis in range(rank)]
        indices = tuple(summed.get(axis, left[axis]) for axis in range(rank))
        return te.sum(data[indices], axis=list(summed.values()))

    return te.compute(tuple(shape), element, name="sum")
