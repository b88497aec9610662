"""Rotary position embeddings: pairs of elements of each head turned by an angle that its position
gives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.nn.norm import wide
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import indexing
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


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
    """Rows of a table [positions, width / 2] at positions [batch, length], which are checked."""
    rows, width = cache.shape
    checked = indexing.check(b, positions, rows, "a position")
    shape = [*positions.shape, width]

    def compute(table: te.Tensor, position: te.Tensor) -> te.Tensor:
        return te.compute(
            [ex.prim(e) for e in shape],
            lambda n, s, d: table(checked.address(position(n, s)), d),
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

    full = b.facts.same(width, size) is True

    def compute(data: te.Tensor, cos: te.Tensor, sin: te.Tensor) -> te.Tensor:
        half = ex.prim(width) // 2

        def element(n: Any, h: Any, s: Any, d: Any) -> Any:
            head = (partial(data, n, h, s), partial(cos, n, s), partial(sin, n, s))
            turned = _neighbours(*head, d) if turn.interleaved else _half_apart(*head, d, half)
            if full:
                return turned
            return tirx.if_then_else(ex.prim(width) <= d, data(n, h, s, d), turned)

        return te.compute([ex.prim(extent) for extent in x.shape], element, name="rotate")

    return ew.cast(
        b,
        b.te(
            compute, *(ew.cast(b, value, dtype) for value in (x, turn.cos, turn.sin)), name="rotate"
        ),
        x.dtype,
    )


Row = Callable[[Any], Any]
"""The elements of a head, or the angles of a position, by their place."""


def _neighbours(data: Row, cos: Row, sin: Row, d: Any) -> Any:
    """Element `d` of a head turned whose neighbours are paired."""
    pair, second = tirx.floordiv(d, ex.prim(2)), tirx.floormod(d, ex.prim(2))
    # Without a choice: the index follows a pattern, which kernels read in vectors, and a sign is
    # exact as a factor.
    across = data(d + 1 - second * 2)
    return data(d) * cos(pair) + across * (second * 2 - 1).astype(across.ty) * sin(pair)


def _half_apart(data: Row, cos: Row, sin: Row, d: Any, half: Any) -> Any:
    """Element `d` of a head turned that is paired with the one `half` elements away."""
    low = data(d) * cos(d) + -data(d + half) * sin(d)
    high = data(d) * cos(d - half) + data(d - half) * sin(d - half)
    # As a concatenation, either part of which is computed in vectors.
    return tirx.if_then_else(half <= d, high, low)
