"""Convolutions over any number of spatial axes, channels first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.nn.pad import pad_zero
from compiler.ir.ops.nn.window import Window, read_inside
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

_RELAX: dict[int, tuple[Any, str, str]] = {
    2: (relax.op.nn.conv2d, "NCHW", "OIHW"),
    3: (relax.op.nn.conv3d, "NCDHW", "OIDHW"),
}


def conv(
    b: Builder, x: Value, weight: Value, bias: Value | None, window: Window, groups: int
) -> Value:
    """X [N, C, *spatial] with weight [O, C/groups, *kernel] and bias [O] to [N, O, *out].

    Half precision accumulates in float32. Weights of fixed extents become Relax's own convolution,
    others a loop nest.
    """
    if x.dtype in ("float16", "bfloat16"):
        wide = [None if value is None else ew.cast(b, value, "float32") for value in (weight, bias)]
        result = conv(b, ew.cast(b, x, "float32"), wide[0], wide[1], window, groups)  # type: ignore[arg-type]
        return ew.cast(b, result, x.dtype)
    channels = b.same(
        x.shape[1],
        b.facts.simplify(ex.mul(weight.shape[1], groups)),
        "the input's channels are not what the weight wants",
    )
    b.require(
        ex.equal(ex.floormod(weight.shape[0], groups), 0),
        f"{weight.shape[0]} output channels do not divide into {groups} groups",
    )
    out = [x.shape[0], weight.shape[0], *window.out(b, x.shape[2:])]
    fixed = all(isinstance(ex.plain(extent), int) for extent in (*weight.shape, channels))
    if fixed and window.rank == 1 and ew.is_float(x.dtype):
        return _row(b, x, weight, bias, window, groups)
    if fixed and window.rank in _RELAX and ew.is_float(x.dtype):
        result = _relax(b, x, weight, window, groups, channels, out)
    else:
        result = _nest(b, x, weight, window, groups, out)
    return add_bias(b, result, bias)


def add_bias(b: Builder, x: Value, bias: Value | None) -> Value:
    """X [N, O, ...] plus a bias [O], None for none."""
    return x if bias is None else ew.add(b, x, per_channel(b, bias, x))


def per_channel(b: Builder, vector: Value, x: Value) -> Value:
    """A vector [C] shaped [1, C, 1, ...] to broadcast over x [N, C, ...]."""
    extent = b.same(
        vector.shape[0], x.shape[1], f"a vector of {vector.shape[0]} for {x.shape[1]} channels"
    )
    return layout.reshape(b, vector, [1, extent, *[1] * (len(x.shape) - 2)])


def _row(
    b: Builder, x: Value, weight: Value, bias: Value | None, window: Window, groups: int
) -> Value:
    """One spatial axis as images of one row, for which there are kernels; Relax's layout pass sees
    through these two operators.
    """
    n, c, *extents = x.shape
    image = b.emit(relax.op.expand_dims(b.tensor(x).expr, 2), [n, c, 1, *extents])
    kernel = layout.unsqueeze(b, weight, [2])
    result = b.tensor(conv(b, image, kernel, bias, window.row(), groups))
    return b.emit(
        relax.op.squeeze(result.expr, 2),
        [extent for axis, extent in enumerate(result.shape) if axis != 2],
    )


def _relax(
    b: Builder,
    x: Value,
    weight: Value,
    window: Window,
    groups: int,
    channels: Extent,
    out: Sequence[Extent],
) -> Value:
    if not all(isinstance(ex.plain(pad), int) for pad in (*window.before, *window.after)):
        x, window = (
            pad_zero(b, x, [0, 0, *window.before], [0, 0, *window.after]),
            window.without_padding(),
        )
    function, data_layout, kernel_layout = _RELAX[window.rank]
    source = b.adopt(b.tensor(x).expr, [x.shape[0], channels, *x.shape[2:]])
    call = function(
        source.expr,
        b.tensor(weight).expr,
        strides=list(window.strides),
        padding=[int(pad) for pad in (*window.before, *window.after)],
        dilation=list(window.dilations),
        groups=groups,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
    )
    return b.emit(call, out)


def _nest(
    b: Builder, x: Value, weight: Value, window: Window, groups: int, out: Sequence[Extent]
) -> Value:
    depth = weight.shape[1]
    per_group = ex.maximum(ex.floordiv(weight.shape[0], groups), 1)

    def compute(data: te.Tensor, w: te.Tensor) -> te.Tensor:
        taps = window.taps()
        c = te.reduce_axis((tirx.const(0, "int64"), ex.prim(depth)), name="c")

        def element(n: Any, o: Any, *position: Any) -> Any:
            group = tirx.floordiv(o, ex.prim(per_group)) if groups > 1 else tirx.const(0, "int64")
            source = window.under(position, taps)
            value = read_inside(
                lambda *i: data(n, group * ex.prim(depth) + c, *i),
                source,
                x.shape[2:],
                tirx.const(0, x.dtype),
            )
            return te.sum(value * w(o, c, *taps), axis=[c, *taps])

        return te.compute([ex.prim(extent) for extent in out], element, name="conv")

    return b.te(compute, x, weight, name="conv")


def conv_transpose(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    window: Window,
    groups: int,
    out: Sequence[Extent],
) -> Value:
    """The gradient of `conv` as a layer: x [N, C, *spatial], weight [C, O/groups, *kernel] to [N,
    O, *out].

    `window` is that of the convolution whose gradient this is; `out` are its input's spatial
    extents.
    """
    if x.dtype in ("float16", "bfloat16"):
        wide = [None if value is None else ew.cast(b, value, "float32") for value in (weight, bias)]
        result = conv_transpose(b, ew.cast(b, x, "float32"), wide[0], wide[1], window, groups, out)  # type: ignore[arg-type]
        return ew.cast(b, result, x.dtype)
    b.same(
        x.shape[1],
        weight.shape[0],
        f"the input has {x.shape[1]} channels, the weight {weight.shape[0]}",
    )
    b.require(
        ex.equal(ex.floormod(x.shape[1], groups), 0),
        f"{x.shape[1]} channels do not divide into {groups} groups",
    )
    shape = [x.shape[0], b.facts.simplify(ex.mul(weight.shape[1], groups)), *out]
    phases = _Phases.of(b, x, weight, window, groups, out)
    if phases is not None:
        result = phases.run(b, x, shape)
    else:
        result = _scatter(b, x, weight, window, groups, shape)
    return add_bias(b, result, bias)


@dataclass(frozen=True)
class _Phases:
    """A transposed convolution as one of stride 1 with a channel for every phase of the strides,
    whose results are laid side by side.

    Result p gathers the taps k with (p + before - k) divisible by the stride s: those of phase (p +
    before) % s, every s-th one, from the inputs up to (p + before) // s.
    """

    weight: Known
    window: Window
    strides: tuple[int, ...]
    before: tuple[int, ...]
    shift: tuple[int, ...]
    groups: int
    columns: int

    @classmethod
    def of(
        cls, b: Builder, x: Value, weight: Value, window: Window, groups: int, out: Sequence[Extent]
    ) -> _Phases | None:
        """None where kernels, padding or the number of results are not known to fit."""
        before = [pad for pad in map(ex.plain, window.before) if isinstance(pad, int)]
        if (
            not isinstance(weight, Known)
            or not weight.data.size
            or not ew.is_float(x.dtype)
            or len(before) < window.rank
        ):
            return None
        if any(d != 1 for d in window.dilations):
            return None
        spans, pads, after = list[int](), list[int](), list[int]()
        for axis, (k, s) in enumerate(zip(weight.data.shape[2:], window.strides, strict=True)):
            last = ex.floordiv(ex.add(out[axis], before[axis] - 1), s)
            past = ex.plain(b.facts.simplify(ex.sub(last, x.shape[2 + axis])))
            if not isinstance(past, int):
                return None
            spans.append(-(-k // s))
            pads.append(max(spans[-1] - 1 - before[axis] // s, 0))
            after.append(max(past + 1, 0))
        laid = cls._laid_out(weight.data, window.strides, spans, groups)
        shift = tuple(span - 1 - pad for span, pad in zip(spans, pads, strict=True))
        flat = Window.of(spans, pads=[*pads, *after])
        return cls(
            Known(laid, weight.dtype),
            flat,
            window.strides,
            tuple(before),
            shift,
            groups,
            weight.data.shape[1],
        )

    @staticmethod
    def _laid_out(
        weight: np.ndarray[Any, Any], strides: Sequence[int], spans: Sequence[int], groups: int
    ) -> np.ndarray[Any, Any]:
        """[C, O/groups, *kernel] as [O * phases, C/groups, *spans], phases between groups and their
        channels, taps from last to first.
        """
        channels, columns = weight.shape[:2]
        padded = np.zeros(
            (channels, columns, *(span * s for span, s in zip(spans, strides, strict=True))),
            weight.dtype,
        )
        padded[(slice(None), slice(None), *map(slice, weight.shape[2:]))] = weight
        rank = len(spans)
        split = padded.reshape(
            groups,
            -1,
            columns,
            *(size for pair in zip(spans, strides, strict=True) for size in pair),
        )
        flipped = split[(slice(None),) * 3 + (slice(None, None, -1), slice(None)) * rank]
        moved = flipped.transpose(0, *range(4, 4 + 2 * rank, 2), 2, 1, *range(3, 3 + 2 * rank, 2))
        return np.ascontiguousarray(moved.reshape(-1, channels // groups, *spans))

    def run(self, b: Builder, x: Value, shape: Sequence[Extent]) -> Value:
        """The result, of shape [N, O, *out]."""
        wide = conv(b, x, self.weight, None, self.window, self.groups)
        if all(s == 1 for s in self.strides) and all(
            b.facts.same(have, want) is True for have, want in zip(wide.shape, shape, strict=True)
        ):
            return wide
        columns, phases = (
            tirx.const(self.columns, "int64"),
            tirx.const(int(np.prod(self.strides)), "int64"),
        )

        def compute(data: te.Tensor) -> te.Tensor:
            def element(n: Any, o: Any, *position: Any) -> Any:
                phase: Any = tirx.const(0, "int64")
                source = []
                for p, s, before, shift in zip(
                    position, self.strides, self.before, self.shift, strict=True
                ):
                    step, moved = tirx.const(s, "int64"), p + tirx.const(before, "int64")
                    phase = phase * step + tirx.floormod(moved, step)
                    source.append(tirx.floordiv(moved, step) - tirx.const(shift, "int64"))
                group, own = (
                    (tirx.floordiv(o, columns), tirx.floormod(o, columns))
                    if self.groups > 1
                    else (tirx.const(0, "int64"), o)
                )
                return data(n, (group * phases + phase) * columns + own, *source)

            return te.compute([ex.prim(extent) for extent in shape], element, name="phases")

        return b.te(compute, wide, name="phases")


def _scatter(
    b: Builder, x: Value, weight: Value, window: Window, groups: int, shape: Sequence[Extent]
) -> Value:
    """Each result gathers the taps that reach it: with dilation 1, only every stride-th tap of the
    kernel.
    """
    depth, per_group = ex.floordiv(x.shape[1], groups), ex.maximum(weight.shape[1], 1)
    sparse = all(d == 1 for d in window.dilations)
    zero = tirx.const(0, "int64")
    spans = [
        ex.ceildiv(k, s) if sparse else k
        for k, s in zip(window.kernel, window.strides, strict=True)
    ]

    def compute(data: te.Tensor, w: te.Tensor) -> te.Tensor:
        steps = [
            te.reduce_axis((zero, ex.prim(span)), name=f"k{axis}")
            for axis, span in enumerate(spans)
        ]
        c = te.reduce_axis((zero, ex.prim(depth)), name="c")

        def element(n: Any, o: Any, *position: Any) -> Any:
            source, taps, valid = [], [], []
            for axis, p in enumerate(position):
                stride = tirx.const(window.strides[axis], "int64")
                padded = p + ex.prim(window.before[axis])
                tap = (
                    tirx.floormod(padded, stride) + steps[axis] * stride if sparse else steps[axis]
                )
                reach = padded - tap * tirx.const(window.dilations[axis], "int64")
                at_source = tirx.floordiv(reach, stride)
                source.append(at_source)
                taps.append(tap)
                valid += [
                    reach >= zero,
                    at_source < ex.prim(x.shape[2 + axis]),
                    tap < ex.prim(window.kernel[axis]),
                ]
                valid += [] if sparse else [tirx.EQ(tirx.floormod(reach, stride), zero)]
            group, inner = (
                (tirx.floordiv(o, ex.prim(per_group)), tirx.floormod(o, ex.prim(per_group)))
                if groups > 1
                else (zero, o)
            )
            channel = group * ex.prim(depth) + c
            term = data(n, channel, *source) * w(channel, inner, *taps)
            return te.sum(
                tirx.if_then_else(tirx.all(*valid), term, tirx.const(0, x.dtype)),
                axis=[c, *steps],
            )

        return te.compute([ex.prim(extent) for extent in shape], element, name="conv_transpose")

    return b.te(compute, x, weight, name="conv_transpose")


def transposed_extent(
    b: Builder, window: Window, axis: int, extent: Extent, output_padding: int
) -> Extent:
    """Extent of a transposed convolution's result where padding is given."""
    grown = ex.add(
        ex.mul(ex.sub(extent, 1), window.strides[axis]), ex.add(window.reach(axis), output_padding)
    )
    result = b.facts.simplify(ex.sub(grown, ex.add(window.before[axis], window.after[axis])))
    b.require(
        ex.greater_equal(result, 0),
        f"a transposed convolution of an axis of {extent} leaves {result} elements",
    )
    return result
