"""Rotary position embeddings: pairs of elements of each head turned by an angle that its position
gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import indexing
from compiler.ir.ops.nn_norm import wide
from compiler.ir.values import Value


@dataclass(frozen=True)
class Rotation:
    """cos and sin [batch, length, width / 2]; the first `width` elements of a head turn, neighbours
    paired if `interleaved`.
    """

    cos: Value
    sin: Value
    interleaved: bool

    def width(self, b: Builder) -> Extent:
        """How many elements of a head turn."""
        return b.facts.simplify(ex.mul(self.cos.shape[-1], 2))  # type: ignore[no-any-return]


def angles(b: Builder, cache: Value, positions: Value) -> Value:
    """Rows of a cache [positions, width / 2] at positions [batch, length], which are checked."""
    indexing.check(b, positions, cache.shape[0], "a rotary embedding's positions")
    rows, width = cache.shape
    shape = [*positions.shape, width]

    def compute(table: te.Tensor, place: te.Tensor) -> te.Tensor:
        return te.compute(
            [ex.prim(e) for e in shape],
            lambda n, s, d: table(indexing.wrap(place(n, s), rows), d),
            name="angles",
        )

    return b.te(compute, cache, positions, name="angles")


def rotate(b: Builder, x: Value, turn: Rotation) -> Value:
    """x [batch, heads, length, size] turned; worked out in float32 where it is narrower."""
    batch, _, length, size = x.shape
    width = turn.width(b)
    b.require(
        ex.less_equal(width, size), f"rotary embedding turns {width} elements of heads of {size}"
    )
    for angle in (turn.cos, turn.sin):
        for have, want in zip(angle.shape, (batch, length, turn.cos.shape[2]), strict=True):
            b.same(
                have,
                want,
                f"a rotary embedding's angles are {list(map(str, angle.shape))} for {batch} x "
                f"{length} positions",
            )
    dtype = wide(x.dtype)

    def compute(data: te.Tensor, cos: te.Tensor, sin: te.Tensor) -> te.Tensor:
        def at(n: Any, h: Any, s: Any, d: Any) -> Any:
            pair, other, first = _pairing(d, ex.prim(width), turn.interleaved)
            kept = data(n, h, s, d)
            across = data(n, h, s, other)
            turned = kept * cos(n, s, pair) + tirx.Select(first, -across, across) * sin(n, s, pair)
            return tirx.if_then_else(d < ex.prim(width), turned, kept)

        return te.compute([ex.prim(extent) for extent in x.shape], at, name="rotate")

    return ew.cast(
        b,
        b.te(
            compute, *(ew.cast(b, value, dtype) for value in (x, turn.cos, turn.sin)), name="rotate"
        ),
        x.dtype,
    )


def _pairing(d: Any, width: Any, interleaved: bool) -> tuple[Any, Any, Any]:
    """Number of the pair that element `d` is in, where its other element is, and whether `d` is the
    first of it.
    """
    if interleaved:
        first = tirx.EQ(tirx.floormod(d, ex.prim(2)), ex.prim(0))
        return tirx.floordiv(d, ex.prim(2)), tirx.Select(first, d + 1, d - 1), first
    half = tirx.floordiv(width, ex.prim(2))
    first = d < half
    return tirx.Select(first, d, d - half), tirx.Select(first, d + half, d - half), first
