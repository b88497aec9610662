"""The bias of attention's scores: masks, causality, windows and padding as one tensor of zeros,
biases and -inf.
"""

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

_REST = 4
"""Rank of scores: batch, heads, queries, keys."""


@dataclass(frozen=True)
class Sight:
    """Which keys query i sees: those from i + offset - left to i + offset + right, None being
    without bound.

    ends: integers [batch], how many keys there are in each batch entry; the last query then stands
    at the last of them.
    """

    offset: Extent = 0
    left: int | None = None
    right: int | None = None
    ends: Value | None = None

    @property
    def unlimited(self) -> bool:
        """True if every query sees every key."""
        return self.left is None and self.right is None and self.ends is None


def bias(b: Builder, scores: Value, mask: Value | None, sight: Sight) -> Value | None:
    """The tensor to add to scores [batch, heads, m, n], broadcast over batch and heads where it can
    be; None where all is seen.

    A bool mask lets pass where it holds, a float one is added; it broadcasts to the scores but for
    its last axis: keys beyond that are not seen.
    """
    if mask is None and sight.unlimited:
        return None
    shape = _shape(b, scores, mask, sight)
    if (
        mask is not None
        and mask.dtype != "bool"
        and sight.unlimited
        and b.facts.same(mask.shape[-1], shape[-1]) is True
    ):
        rows = len(mask.shape) < 2 or b.facts.same(mask.shape[-2], shape[-2]) is True
        if (
            rows
            and mask.dtype == scores.dtype
            and all(map(_decided(b), mask.shape[:-2], shape[len(shape) - len(mask.shape) :]))
        ):
            return mask
    tensors_in = [value for value in (mask, sight.ends) if value is not None]

    def compute(*tensors: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            added: Any = tirx.const(0, scores.dtype)
            if mask is not None:
                added = _masked(b, tensors[0], mask, shape, i, scores.dtype)
            end = None if sight.ends is None else tensors[-1](i[0]).astype("int64")
            for seen in _conditions(sight, i[-2], i[-1], end, scores.shape[-2]):
                added = tirx.Select(seen, added, tirx.const(float("-inf"), scores.dtype))
            return added

        return te.compute([ex.prim(extent) for extent in shape], element, name="attention_bias")

    return b.te(compute, *tensors_in, name="attention_bias")


def _decided(b: Builder) -> Any:
    return lambda have, want: b.facts.same(have, 1) is True or b.facts.same(have, want) is True


def _shape(b: Builder, scores: Value, mask: Value | None, sight: Sight) -> list[Extent]:
    """The least shape that holds every difference between rows, heads and batch entries."""
    own: tuple[Extent, ...] = () if mask is None else mask.shape
    rank = _REST if sight.ends is not None else max(2, len(own))
    shape: list[Extent] = [1] * (rank - 2) + list(scores.shape[-2:])
    for axis in range(len(own) - 1):
        target = axis - len(own)
        want = scores.shape[target]
        b.require(
            ex.either(ex.equal(own[axis], 1), ex.equal(own[axis], want)),
            f"a mask's axis of {own[axis]} does not broadcast to {want}",
        )
        if target < -2 and b.facts.same(own[axis], 1) is not True:
            shape[target] = want
    if own:
        b.require(
            ex.less_equal(own[-1], scores.shape[-1]),
            f"the mask has {own[-1]} keys, there are only {scores.shape[-1]}",
        )
    if sight.ends is not None:
        b.same(
            sight.ends.shape[0],
            scores.shape[0],
            "the numbers of keys must be one for each batch entry",
        )
        shape[0] = scores.shape[0]
    return shape


def _masked(
    b: Builder,
    data: te.Tensor,
    mask: Value,
    shape: list[Extent],
    index: tuple[Any, ...],
    dtype: str,
) -> Any:
    """The mask's share at an index of `shape`: 0 or a bias where it lets pass, else -inf."""
    nothing = tirx.const(float("-inf"), dtype)
    tail, targets = index[len(index) - len(mask.shape) :], shape[len(shape) - len(mask.shape) :]
    point = [
        _position(b, have, want, i)
        for have, want, i in zip(mask.shape[:-1], targets[:-1], tail[:-1], strict=True)
    ]
    item = data(*point, tail[-1])
    value = (
        tirx.Select(item, tirx.const(0, dtype), nothing)
        if mask.dtype == "bool"
        else item.astype(dtype)
    )
    if b.facts.same(mask.shape[-1], targets[-1]) is True:
        return value
    return tirx.if_then_else(tail[-1] < ex.prim(mask.shape[-1]), value, nothing)


def _position(b: Builder, have: Extent, want: Extent, index: Any) -> Any:
    """Where an axis is read that is 1 or `want`."""
    if b.facts.same(have, 1) is True:
        return ex.prim(0)
    if b.facts.same(have, want) is True:
        return index
    return tirx.Select(tirx.EQ(ex.prim(have), ex.prim(1)), ex.prim(0), index)


def _conditions(sight: Sight, row: Any, key: Any, end: Any, rows: Extent) -> list[Any]:
    """The conditions under which a query sees a key."""
    position = row + (ex.prim(sight.offset) if end is None else end - ex.prim(rows))
    conditions = [] if end is None else [key < end]
    if sight.left is not None:
        conditions.append(position - key <= ex.prim(sight.left))
    if sight.right is not None:
        conditions.append(key - position <= ex.prim(sight.right))
    return conditions


def seeing(b: Builder, added: Value, mask: Value | None, sight: Sight) -> Value | None:
    """bool[.., rows, 1]: which rows of a bias see any key; None where all do."""
    unbounded = (
        sight.left is None
        and sight.ends is None
        and b.facts.decide(ex.greater_equal(sight.offset, 0)) is True
    )
    if mask is None and unbounded:
        return None
    *leading, columns = added.shape

    def compute(data: te.Tensor) -> te.Tensor:
        key = te.reduce_axis((ex.prim(0), ex.prim(columns)), name="key")
        nothing = tirx.const(float("-inf"), added.dtype)

        def count(*i: Any) -> Any:
            visible = tirx.NE(data(*i[:-1], key), nothing)
            return te.max(
                tirx.Select(visible, tirx.const(1, "int32"), tirx.const(0, "int32")), axis=[key]
            )

        most = te.compute([*map(ex.prim, leading), ex.prim(1)], count, name="most")
        return te.compute(
            [*map(ex.prim, leading), ex.prim(1)], lambda *i: most(*i) > 0, name="seeing"
        )

    return b.te(compute, added, name="seeing")
