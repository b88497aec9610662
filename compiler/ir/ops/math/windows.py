"""Tensors made of numbers alone: windows, mel filter banks, ranges."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.facts import UNBOUNDED


def cosine_window(
    b: Builder,
    size: Extent,
    weights: Sequence[float],
    periodic: bool,
    dtype: str,
    lone: bool = False,
) -> Value:
    """The sum over k of (-1)^k weights[k] cos(2 pi k n / N), with N the size, or one less for a
    symmetric window. lone: whether a window of one element is 1.
    """
    period = size if periodic else ex.sub(size, 1)
    work = dtype if dtype in ("float32", "float64") else "float32"

    def element(n: Any) -> Any:
        turn = (
            n.astype("float64")
            * tirx.const(2 * math.pi, "float64")
            / tirx.max(ex.prim(period), ex.prim(1)).astype("float64")
        )
        terms = (
            tirx.const(w * (-1) ** k, "float64") * tirx.cos(turn * tirx.const(k, "float64"))
            for k, w in enumerate(weights)
        )
        value = sum(terms, tirx.const(0.0, "float64")).astype(work)
        single = tirx.EQ(ex.prim(size), ex.prim(1))
        return tirx.Select(single, tirx.const(1, work), value) if lone else value

    return ew.cast(
        b, b.te(lambda: te.compute([ex.prim(size)], element, name="window"), name="window"), dtype
    )


def mel_weights(
    b: Builder, bins: Extent, length: Extent, rate: Extent, low: Value, high: Value, dtype: str
) -> Value:
    """[length // 2 + 1, bins]: triangles between frequencies evenly spaced on the mel scale from
    `low` to `high` hertz.

    As the ONNX reference: the edges are rounded down to bins, a triangle's rising side includes its
    top, and one whose rising side is empty is 1 at its top.
    """
    spectrum = b.facts.simplify(ex.add(ex.floordiv(length, 2), 1))

    def compute(edges: te.Tensor) -> te.Tensor:
        return te.compute(
            [ex.prim(spectrum), ex.prim(bins)],
            lambda j, i: _triangle(j, *(edges(i + ex.prim(k)) for k in range(3))),
            name="mel",
        )

    return ew.cast(
        b, b.te(compute, _mel_edges(b, bins, length, rate, low, high), name="mel"), dtype
    )


def _triangle(j: Any, left: Any, centre: Any, right: Any) -> Any:
    one, zero = tirx.const(1.0, "float32"), tirx.const(0.0, "float32")
    rise = (j - left).astype("float32") / tirx.max(centre - left, ex.prim(1)).astype("float32")
    fall = (right - j).astype("float32") / tirx.max(right - centre, ex.prim(1)).astype("float32")
    top = tirx.Select(tirx.EQ(j, centre), one, zero)
    slope = tirx.Select(tirx.And(j >= left, j <= centre), rise, zero)
    rising = tirx.Select(tirx.EQ(centre, left), top, slope)
    return tirx.Select(tirx.And(j >= centre, j < right), fall, rising)


def _mel_edges(
    b: Builder, bins: Extent, length: Extent, rate: Extent, low: Value, high: Value
) -> Value:
    """Spectrum bins of the triangles' corners, two more than there are triangles."""
    count = ex.add(bins, 2)
    per_mel = math.log(10) / 2595
    hertz = [layout.reshape(b, ew.cast(b, value, "float64"), [1]) for value in (low, high)]

    def number(value: Any) -> Any:
        return ex.prim(value).astype("float64")

    def compute(first: te.Tensor, last: te.Tensor) -> te.Tensor:
        def mel(t: te.Tensor) -> Any:
            return tirx.log(
                tirx.const(1, "float64") + t(ex.prim(0)) / tirx.const(700, "float64")
            ) / tirx.const(per_mel, "float64")

        def edge(i: Any) -> Any:
            mels = mel(first) + i.astype("float64") * (mel(last) - mel(first)) / number(count)
            frequency = tirx.const(700, "float64") * (
                tirx.exp(mels * tirx.const(per_mel, "float64")) - tirx.const(1, "float64")
            )
            return tirx.floor(number(ex.add(length, 1)) * frequency / number(rate)).astype("int64")

        return te.compute([ex.prim(count)], edge, name="mel_edges")

    return b.te(compute, *hertz, name="mel_edges")


def float_range(b: Builder, start: Value, limit: Value, delta: Value, work: str) -> Value:
    """start + i * delta up to `limit`, exclusive, of floats: the count, max(ceil((limit - start) /
    delta), 0), is a new dim. A run fails for a delta of 0, and where the count is NaN.

    Worked out in the dtype `work`, which a result in 16 bits is rounded from.
    """
    dtype = start.dtype
    if all(isinstance(value, Known) and not value.symbolic for value in (start, limit, delta)):
        first, last, step = (float(value.data.reshape(-1)[0]) for value in (start, limit, delta))  # type: ignore[union-attr]
        return Known(
            np.arange(first, last, step, dtype=np.dtype(work)).astype(np.dtype(dtype)), dtype
        )
    parts = [layout.reshape(b, ew.cast(b, value, work), [1]) for value in (start, limit, delta)]
    zero = ex.prim(0)

    def count(inputs: list[Any], outputs: list[Any]) -> None:
        first, last, step = (item[zero] for item in inputs)
        steps = tirx.ceil((last - first).astype("float64") / step.astype("float64"))
        # Neither NaN nor what no axis can have becomes an integer; -1 is refused as an extent.
        none, most = tirx.const(0, "float64"), tirx.const(UNBOUNDED, "float64")
        fits = tirx.And(step != tirx.const(0, work), steps <= most)
        number = tirx.max(tirx.Select(fits, steps, none), none).astype("int64")
        outputs[0][zero] = tirx.Select(fits, number, ex.prim(-1))

    (total,) = loop_programs.program(b, count, [((1,), "int64")], *parts, name="range_count")
    number: Extent = b.known_extents(total, "range").scalars()[0]

    def compute(first: te.Tensor, step: te.Tensor) -> te.Tensor:
        return te.compute(
            [ex.prim(number)],
            lambda i: (first(zero) + i.astype(work) * step(zero)).astype(dtype),
            name="range",
        )

    return b.te(compute, parts[0], parts[2], name="range")
