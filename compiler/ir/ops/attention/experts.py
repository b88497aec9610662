"""Mixtures of experts: two layers, whose weights each token takes from the experts chosen for it.

Rows are sorted by their experts. Each row meets the weights of its own expert alone, and the rows
of an expert meet them one after the other, panel by panel, while a panel is in the cache.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.attention.routing import Groups, Routes, group
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

Array = np.ndarray[Any, Any]
Activation = Callable[..., Any]
"""Of one float32 expression, or of two: a gate and what it scales."""
REAL = 32
"""Bits of a number that is a float32."""
_ROWS = 4
"""Rows of a block of float32 weights: a kernel multiplies as many by a vector that it reads."""
_PANEL, _PACKED_PANEL = 32, 16
"""Columns of a panel: two vectors of the widest registers, and for packed weights, which are read
with one row only, a vector.
"""


@dataclass(frozen=True)
class Layer:
    """The weights of one layer in panels of columns, of `parts` outputs side by side: a gate and
    what it scales, or one.

    numbers: float32 [experts, parts * panels, depth, width], or uint8 [.., depth * bits / 8, width]
    whose lowest bits come first. scales: float32 [experts, parts * panels, blocks, width], zeros:
    uint8 of that shape, None where each is half of the range. bias: float32 [experts, parts *
    panels, width], None without one. Columns that fill the last panel of a part are zero.
    """

    bits: int
    parts: int
    columns: int
    depth: int
    block: int
    numbers: Known
    scales: Known | None
    zeros: Known | None
    bias: Known | None

    @property
    def panels(self) -> int:
        """Panels of one part."""
        return self.numbers.shape[1] // self.parts

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.numbers.shape[3]

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return _ROWS if self.bits == REAL else 1

    @property
    def each(self) -> int:
        """Numbers of a byte."""
        return 8 // self.bits

    @property
    def greatest(self) -> int:
        """The greatest packed number."""
        return (1 << self.bits) - 1

    @property
    def bytes(self) -> int:
        """Bytes of a step along a block, of at most eight numbers."""
        return math.gcd(self.block // self.each, max(8 // self.each, 1))

    @property
    def tensors(self) -> list[Known]:
        """The weights of the layer's matmul."""
        return [
            weights for weights in (self.numbers, self.scales, self.zeros) if weights is not None
        ]


def real_layer(weights: Array, bias: Array | None, parts: int) -> Layer:
    """A layer of floats [experts, parts * columns, depth] and [experts, parts * columns]."""
    _, rows, depth = weights.shape
    numbers = _panels(weights.astype(np.float32, copy=False), parts, _PANEL)
    offsets = None if bias is None else _bias(bias, parts, _PANEL)
    return Layer(REAL, parts, rows // parts, depth, depth, numbers, None, None, offsets)


def packed_layer(
    bits: int,
    numbers: Array,
    scales: Array,
    zeros: Array | None,
    bias: Array | None,
    parts: int,
) -> Layer:
    """A layer of uint8 [experts, parts * columns, depth * bits / 8], floats and uint8 [.., blocks],
    and floats [experts, parts * columns].
    """
    depth, blocks = numbers.shape[2] * 8 // bits, scales.shape[2]
    return Layer(
        bits,
        parts,
        numbers.shape[1] // parts,
        depth,
        depth // blocks,
        _panels(numbers, parts, _PACKED_PANEL),
        _panels(scales.astype(np.float32), parts, _PACKED_PANEL),
        None if zeros is None else _panels(zeros, parts, _PACKED_PANEL),
        None if bias is None else _bias(bias, parts, _PACKED_PANEL),
    )


def _panels(values: Array, parts: int, width: int) -> Known:
    """[experts, parts * columns, depth] as [experts, parts * panels, depth, width]."""
    experts, rows, depth = values.shape
    columns = rows // parts
    panels = -(-columns // width)
    split = values.reshape(experts, parts, columns, depth)
    if panels * width != columns:
        more = [(0, 0), (0, 0), (0, panels * width - columns), (0, 0)]
        split = np.pad(split, more)
    split = split.reshape(experts, parts * panels, width, depth)
    return Known.of(np.ascontiguousarray(split.transpose(0, 1, 3, 2)))


def _bias(values: Array, parts: int, width: int) -> Known:
    panels = _panels(values.astype(np.float32)[:, :, None], parts, width)
    return Known.of(np.ascontiguousarray(panels.data[:, :, 0]))


def mixture(
    b: Builder, x: Value, routes: Routes, first: Layer, second: Layer, activation: Activation
) -> Value:
    """float32 [tokens, columns of the second layer]: of each token the sum, over its experts, of
    its share of what they make of it.

    x: float32 [tokens, depth of the first layer]; activation: of as many expressions as the first
    layer has parts.
    """
    groups = group(b, routes, first.numbers.shape[0], first.rows)
    token = groups.token
    projected = _matmul(b, x, first, groups, lambda index, n, m: (index(n, m),), token)
    hidden = _activated(b, projected, first, groups, activation)
    blocks, rows = token.shape
    wide = layout.reshape(b, hidden, [blocks, rows, first.panels * first.width])
    result = _matmul(b, wide, second, groups, lambda _, n, m: (n, m), token)
    return _shared_out(b, result, second, groups, routes)


def _matmul(
    b: Builder, x: Value, layer: Layer, groups: Groups, position: Callable[..., Any], token: Value
) -> Value:
    """float32 [parts * panels, blocks, rows, width]: rows of x times the weights of their blocks'
    experts.

    position: from the groups' tokens, a block and a row in it, the index in x of what to multiply.
    """
    blocks, rows = groups.token.shape
    panels = layer.parts * layer.panels
    # One axis, which both sides depend on: kernels take it for that of a batch of matmuls.
    shape = [ex.mul(panels, blocks), rows, layer.width]

    def compute(data: te.Tensor, expert: te.Tensor, index: te.Tensor, *weights: te.Tensor) -> Any:
        axes = _depth(layer)

        def element(q: Any, m: Any, c: Any) -> Any:
            p, n = tirx.floordiv(q, ex.prim(blocks)), tirx.floormod(q, ex.prim(blocks))
            row, weight = position(index, n, m), (expert(n), p, c)
            return te.sum(_term(layer, weights, weight, axes, lambda k: data(*row, k)), axis=axes)

        return te.compute([ex.prim(e) for e in shape], element, name="experts")

    name = "experts_product" if layer.bits == REAL else "packed_experts_product"
    result = b.te(compute, x, groups.expert, token, *layer.tensors, name=name)
    return layout.reshape(b, result, [panels, blocks, rows, layer.width])


def _depth(layer: Layer) -> list[Any]:
    """The axes that a product sums over: the depth, or of packed numbers blocks and in each the
    steps of some bytes.
    """

    def axis(extent: int, name: str) -> Any:
        return te.reduce_axis((ex.prim(0), ex.prim(extent)), name=name)

    if layer.bits == REAL:
        return [axis(layer.depth, "k")]
    blocks, steps = layer.depth // layer.block, layer.block // layer.each // layer.bytes
    return [axis(blocks, "block"), axis(steps, "step")]


def _term(
    layer: Layer,
    weights: tuple[te.Tensor, ...],
    where: tuple[Any, Any, Any],
    axes: list[Any],
    left: Callable[[Any], Any],
) -> Any:
    """One step's term of the matmul for (expert, panel, column); left: the rows' number at a
    position along the depth.

    The numbers of a step share a scale, by which their sum is multiplied: one operation for all of
    them, and one that waits for the step before.
    """
    e, p, c = where
    if layer.bits == REAL:
        return left(axes[0]) * weights[0](e, p, axes[0], c)
    block, step = axes
    zero: Any = tirx.const(1 << (layer.bits - 1), "float32")
    if layer.zeros is not None:
        zero = weights[2](e, p, block, c).astype("float32")
    start = block * (layer.block // layer.each) + step * layer.bytes
    total: Any = None
    for byte in range(layer.bytes):
        packed = weights[0](e, p, start + byte, c).astype("int32")
        for part in range(layer.each):
            number = packed if layer.bits == 8 else (packed >> part * layer.bits) & layer.greatest
            real = number.astype("float32") - zero
            term = left((start + byte) * layer.each + part) * real
            total = term if total is None else total + term
    return total * weights[1](e, p, block, c)


def _activated(
    b: Builder, projected: Value, layer: Layer, groups: Groups, activation: Activation
) -> Value:
    """float32 [blocks, rows, panels, width]: the activation of the parts, each with its bias."""
    blocks, rows = groups.token.shape
    shape = [blocks, rows, layer.panels, layer.width]

    def compute(data: te.Tensor, expert: te.Tensor, *bias: te.Tensor) -> te.Tensor:
        def part(index: int, i: tuple[Any, ...]) -> Any:
            n, m, p, c = i
            panel = p + index * layer.panels
            value = data(panel, n, m, c)
            return value + bias[0](expert(n), panel, c) if bias else value

        return te.compute(
            [ex.prim(e) for e in shape],
            lambda *i: activation(*(part(index, i) for index in range(layer.parts))),
            name="activated",
        )

    biases = [] if layer.bias is None else [layer.bias]
    return b.te(compute, projected, groups.expert, *biases, name="experts_activation")


def _shared_out(b: Builder, rows_out: Value, layer: Layer, groups: Groups, routes: Routes) -> Value:
    """float32 [tokens, columns]: the rows of each token, with their bias, times their shares."""
    blocks, rows = groups.token.shape
    flat: list[Extent] = [layer.panels, ex.mul(blocks, rows), layer.width]
    shape = [routes.tokens, layer.panels, layer.width]

    def compute(
        data: te.Tensor, row: te.Tensor, share: te.Tensor, expert: te.Tensor, *bias: te.Tensor
    ) -> te.Tensor:
        j = te.reduce_axis((ex.prim(0), ex.prim(routes.each)), name="j")

        def element(t: Any, p: Any, c: Any) -> Any:
            value = data(p, row(t, j), c)
            value = value + bias[0](expert(t, j), p, c) if bias else value
            return te.sum(share(t, j) * value, axis=[j])

        return te.compute([ex.prim(e) for e in shape], element, name="shared_out")

    tensors: list[Value] = [groups.row, routes.shares, routes.experts]
    if layer.bias is not None:
        tensors.append(layer.bias)
    total = b.te(compute, layout.reshape(b, rows_out, flat), *tensors, name="experts_sum")
    padded = layout.reshape(b, total, [routes.tokens, layer.panels * layer.width])
    if layer.panels * layer.width == layer.columns:
        return padded
    return layout.strided_slice(b, padded, 1, 0, layer.columns, 1)
