"""Windows taken apart: max pooling undone, and images put together from columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.nn.pad import pad_zero
from compiler.ir.ops.nn.window import Window
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.shape import layout
from compiler.ir.ops.shape.scatter import Reduction, scatter_elements
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def unpool_extents(b: Builder, window: Window, extents: Sequence[Extent]) -> tuple[Extent, ...]:
    """The least spatial extents that the window pools to `extents`."""
    grown = [
        ex.add(ex.mul(ex.sub(extent, 1), stride), k)
        for extent, stride, k in zip(extents, window.strides, window.kernel, strict=True)
    ]
    pads = [
        ex.add(before, after) for before, after in zip(window.before, window.after, strict=True)
    ]
    return tuple(
        b.facts.simplify(ex.sub(extent, pad)) for extent, pad in zip(grown, pads, strict=True)
    )


def max_unpool(
    b: Builder, x: Value, indices: Value, window: Window, shape: Sequence[Extent] | None
) -> Value:
    """Zeros with x's elements at `indices`, which count in the flattened least shape that the
    window pools to x's.

    shape: that of the result where it is larger.
    """
    natural = [*x.shape[:2], *unpool_extents(b, window, x.shape[2:])]
    for extent in natural[2:]:
        b.require(ex.greater_equal(extent, 0), "the padding is larger than what the windows cover")
    size, count = (b.facts.simplify(ex.prod(extents)) for extents in (natural, x.shape))
    zeros = broadcast.expand(b, Known(np.zeros(1, np.dtype(x.dtype)), x.dtype), [size], "zeros")
    flat = [layout.reshape(b, value, [count]) for value in (indices, x)]
    result = layout.reshape(
        b, scatter_elements(b, zeros, flat[0], flat[1], 0, Reduction.NONE), natural
    )
    if shape is None:
        return result
    for have, want in zip(natural[:2], shape[:2], strict=True):
        b.same(want, have, f"output_shape has {want} where the input has {have}")
    return pad_zero(
        b,
        result,
        [0] * len(natural),
        [b.facts.simplify(ex.sub(e, n)) for e, n in zip(shape, natural, strict=True)],
    )


def col2im(b: Builder, x: Value, image: Sequence[Extent], window: Window) -> Value:
    """Columns [N, C * taps, blocks] added up where their windows stand, to [N, C, *image]."""
    taps = b.facts.simplify(ex.prod(window.kernel))
    b.require(ex.greater(taps, 0), "an empty block holds no column")
    blocks = window.out(b, image)
    b.same(
        x.shape[2],
        b.facts.simplify(ex.prod(blocks)),
        f"{x.shape[2]} columns do not fill the image",
    )
    divisor = ex.maximum(taps, 1)
    b.require(
        ex.equal(ex.floormod(x.shape[1], divisor), 0),
        f"{x.shape[1]} rows do not divide into blocks of {taps}",
    )
    shape = b.extents([x.shape[0], ex.floordiv(x.shape[1], divisor), *image], "channels")
    zero = tirx.const(0, "int64")

    def compute(data: te.Tensor) -> te.Tensor:
        steps = window.taps()

        def element(n: Any, c: Any, *position: Any) -> Any:
            row, column, valid = c, zero, []
            for axis, p in enumerate(position):
                stride = tirx.const(window.strides[axis], "int64")
                moved = (
                    p
                    + ex.prim(window.before[axis])
                    - steps[axis] * tirx.const(window.dilations[axis], "int64")
                )
                block = tirx.floordiv(moved, stride)
                valid += [
                    moved >= zero,
                    block < ex.prim(blocks[axis]),
                    tirx.EQ(tirx.floormod(moved, stride), zero),
                ]
                row = row * ex.prim(window.kernel[axis]) + steps[axis]
                column = column * ex.prim(blocks[axis]) + block
            return te.sum(
                tirx.if_then_else(tirx.all(*valid), data(n, row, column), tirx.const(0, x.dtype)),
                axis=steps,
            )

        return te.compute([ex.prim(extent) for extent in shape], element, name="col2im")

    return b.te(compute, x, name="col2im")
