"""Geometry of sliding windows: extents, padding and guarded reads, for any number of
spatial axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tvm import te, tirx

from compiler.errors import ImportFailed
from compiler.ir.graph.builder import Builder
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


class AutoPad(StrEnum):
    """How padding follows from the extents."""

    NOTSET = "NOTSET"
    VALID = "VALID"
    SAME_UPPER = "SAME_UPPER"
    SAME_LOWER = "SAME_LOWER"


@dataclass(frozen=True)
class Window:
    """One entry a spatial axis: kernel extent, stride, dilation, and the elements of padding before
    and after.
    """

    kernel: tuple[Extent, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Extent, ...]
    after: tuple[Extent, ...]

    @classmethod
    def of(
        cls,
        kernel: Sequence[Extent],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        pads: Sequence[Extent] | None = None,
    ) -> Window:
        """With 1 for strides and dilations and 0 for pads not given; `pads` lists all begins, then
        all ends.
        """
        rank = len(kernel)
        ones, pads = (1,) * rank, tuple(pads or (0,) * (2 * rank))
        window = cls(
            tuple(kernel),
            tuple(strides or ones),
            tuple(dilations or ones),
            pads[:rank],
            pads[rank:],
        )
        if any(
            len(part) != rank
            for part in (window.strides, window.dilations, window.before, window.after)
        ):
            raise ImportFailed(
                f"strides, dilations and pads must have {rank} spatial axes", reason="attribute"
            )
        if any(step < 1 for step in (*window.strides, *window.dilations)):
            raise ImportFailed("strides and dilations must be positive", reason="attribute")
        return window

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    @property
    def padded(self) -> bool:
        """True if any padding is not known to be zero."""
        return any(
            ex.plain(pad) != 0 if isinstance(ex.plain(pad), int) else True
            for pad in (*self.before, *self.after)
        )

    def reach(self, axis: int) -> Extent:
        """Distance from the first element under the window to the one after its last."""
        return ex.add(ex.mul(ex.sub(self.kernel[axis], 1), self.dilations[axis]), 1)

    def without_padding(self) -> Window:
        """The same window over an input that has been padded already."""
        return replace(self, before=(0,) * self.rank, after=(0,) * self.rank)

    def row(self) -> Window:
        """The window over an image of one row instead of over a line."""
        return Window(
            (1, *self.kernel),
            (1, *self.strides),
            (1, *self.dilations),
            (0, *self.before),
            (0, *self.after),
        )

    def auto(self, b: Builder, extents: Sequence[Extent], mode: AutoPad) -> Window:
        """With the padding that `mode` asks for on an input of the given spatial extents."""
        if mode is AutoPad.NOTSET:
            return self
        if mode is AutoPad.VALID:
            return self.without_padding()
        before, after = [], []
        for axis, extent in enumerate(extents):
            steps = ex.sub(ex.ceildiv(extent, self.strides[axis]), 1)
            total = ex.sub(ex.add(ex.mul(steps, self.strides[axis]), self.reach(axis)), extent)
            total = b.facts.simplify(total)
            if b.facts.decide(ex.greater_equal(total, 0)) is not True:
                total = b.facts.simplify(ex.maximum(total, 0))
            small = b.facts.simplify(ex.floordiv(total, 2))
            large = b.facts.simplify(ex.sub(total, small))
            before.append(small if mode is AutoPad.SAME_UPPER else large)
            after.append(large if mode is AutoPad.SAME_UPPER else small)
        return replace(self, before=tuple(before), after=tuple(after))

    def out(self, b: Builder, extents: Sequence[Extent], ceil: bool = False) -> tuple[Extent, ...]:
        """Extents of the result; `ceil` keeps a last partial window, unless it starts in the
        padding after the input.
        """
        return tuple(self._out(b, axis, extent, ceil) for axis, extent in enumerate(extents))

    def pool_extents(
        self, b: Builder, extents: Sequence[Extent], ceil: bool = False
    ) -> tuple[Extent, ...]:
        """The extents of a pool: as `out`, but an axis shorter than the window by less than a
        stride has one partial window, as in ONNX Runtime.
        """
        return tuple(self._pooled(b, axis, extent, ceil) for axis, extent in enumerate(extents))

    def _pooled(self, b: Builder, axis: int, extent: Extent, ceil: bool) -> Extent:
        room = ex.sub(ex.add(ex.add(extent, self.before[axis]), self.after[axis]), self.reach(axis))
        if ceil or b.facts.decide(ex.greater_equal(room, 0)) is True:
            return self._out(b, axis, extent, ceil)
        b.require(
            ex.greater(room, -self.strides[axis]),
            f"a window of {self.reach(axis)} elements does not fit an axis of {extent}",
        )
        return b.facts.simplify(ex.add(ex.floordiv(ex.maximum(room, 0), self.strides[axis]), 1))

    def _out(self, b: Builder, axis: int, extent: Extent, ceil: bool) -> Extent:
        stride, front = self.strides[axis], ex.add(extent, self.before[axis])
        room = ex.sub(ex.add(front, self.after[axis]), self.reach(axis))
        count = b.facts.simplify(ex.add(ex.floordiv(room, stride), 1))
        if ceil:
            wide = ex.minimum(ex.add(ex.ceildiv(room, stride), 1), ex.ceildiv(front, stride))
            count = count if b.facts.same(count, wide) is True else b.facts.simplify(wide)
        if b.facts.decide(ex.greater_equal(count, 0)) is not True:
            b.require(
                ex.greater_equal(count, 0),
                f"a window of {self.reach(axis)} elements does not fit an axis of {extent}",
            )
        return count

    def starts(self, position: Sequence[Any]) -> list[Any]:
        """Index into the unpadded input of each window's first element, negative in the padding."""
        return [
            p * tirx.const(stride, "int64") - ex.prim(before)
            for p, stride, before in zip(position, self.strides, self.before, strict=True)
        ]

    def taps(self) -> list[te.IterVar]:
        """A reduction axis for each kernel axis."""
        return [
            te.reduce_axis((tirx.const(0, "int64"), ex.prim(extent)), name=f"k{axis}")
            for axis, extent in enumerate(self.kernel)
        ]

    def under(self, position: Sequence[Any], taps: Sequence[Any]) -> list[Any]:
        """Index into the unpadded input under each tap of the window at `position`."""
        return [
            start + tap * tirx.const(d, "int64")
            for start, tap, d in zip(self.starts(position), taps, self.dilations, strict=True)
        ]


def read_inside(read: Any, index: Sequence[Any], extents: Sequence[Extent], fill: Any) -> Any:
    """`read(*index)` inside the extents, `fill` elsewhere, where nothing is read."""
    zero = tirx.const(0, "int64")
    inside = [
        condition
        for i, extent in zip(index, extents, strict=True)
        for condition in (i >= zero, i < ex.prim(extent))
    ]
    return tirx.if_then_else(tirx.all(*inside), read(*index), fill)
