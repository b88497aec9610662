"""Broadcasting with symbolic extents: decided at import where the facts allow, at run time
otherwise.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import te, tirx

from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def joined_extent(b: Builder, left: Extent, right: Extent, what: str = "operands") -> Extent:
    """The extent two axes broadcast to; where only run time can tell which of them is 1, a named
    dim chosen there.
    """
    if b.facts.same(left, 1) is True:
        return right
    if b.facts.same(right, 1) is True or b.facts.same(left, right) is True:
        return left
    message = f"{what} do not broadcast: {left} against {right}"
    if b.facts.same(left, 1) is False and b.facts.same(right, 1) is False:
        return b.same(left, right, message)
    b.require(
        ex.either(ex.equal(left, right), ex.either(ex.equal(left, 1), ex.equal(right, 1))), message
    )
    if b.facts.same(left, 1) is False:
        return left
    if b.facts.same(right, 1) is False:
        return right
    return b.symbol(ex.select(ex.equal(left, 1), right, left), "joined")


def joined_shape(
    b: Builder, *shapes: Sequence[Extent], what: str = "operands"
) -> tuple[Extent, ...]:
    """The shape that all the shapes broadcast to (ONNX and numpy rules)."""
    rank = max((len(shape) for shape in shapes), default=0)
    joined: list[Extent] = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, start=rank - len(shape)):
            joined[axis] = joined_extent(b, joined[axis], extent, what)
    return tuple(joined)


def expand(b: Builder, value: Value, shape: Sequence[Extent], name: str = "expand") -> Value:
    """The value repeated to exactly `shape`, which must be one that it broadcasts to."""
    shape = b.extents(shape, "expand")
    if len(shape) == len(value.shape) and all(
        b.facts.same(a, e) is True for a, e in zip(value.shape, shape, strict=True)
    ):
        return value
    if (
        isinstance(value, Known)
        and all(isinstance(extent, int) for extent in shape)
        and ex.prod(shape) <= 4096
    ):
        return Known(np.broadcast_to(value.data, shape), value.dtype)
    tensor = b.tensor(value)
    result = b.te(
        lambda x: te.compute(
            [ex.prim(e) for e in shape], _reader(b, x, tensor.shape, shape), name=name
        ),
        tensor,
        name=name,
    )
    b.repeated[result] = tensor
    return result


def _reader(b: Builder, x: Any, have: Sequence[Extent], want: Sequence[Extent]) -> Any:
    """Index function that reads `x` at the broadcast position; an axis that may be 1 at run time
    selects there.
    """
    offset = len(want) - len(have)

    def element(*index: Any) -> Any:
        position = []
        for axis, extent in enumerate(have):
            i = index[axis + offset]
            if b.facts.same(extent, 1) is True:
                position.append(tirx.const(0, "int64"))
            elif (
                b.facts.same(extent, want[axis + offset]) is True
                or b.facts.same(extent, 1) is False
            ):
                position.append(i)
            else:
                position.append(
                    tirx.Select(
                        tirx.EQ(ex.prim(extent), tirx.const(1, "int64")), tirx.const(0, "int64"), i
                    )
                )
        return x(*position)

    return element


def align(
    b: Builder, *values: Value, what: str = "operands"
) -> tuple[tuple[Tensor, ...], tuple[Extent, ...]]:
    """The values as tensors that Relax itself can broadcast, and the joined shape.

    Relax broadcasts what it can prove; an operand with an axis that may or may not be 1 is expanded
    first.
    """
    shape = joined_shape(b, *(value.shape for value in values), what=what)
    tensors = []
    for value in values:
        offset = len(shape) - len(value.shape)
        plain = all(
            b.facts.same(e, 1) is True or _identical(e, shape[axis + offset])
            for axis, e in enumerate(value.shape)
        )
        tensors.append(b.tensor(value if plain else _expand_dynamic(b, value, shape[offset:])))
    return tuple(tensors), shape


def _expand_dynamic(b: Builder, value: Value, shape: Sequence[Extent]) -> Value:
    """Expand, or only restate the shape where every extent is equal though spelled differently."""
    if isinstance(value, Tensor) and all(
        b.facts.same(a, e) is True or b.facts.same(a, 1) is False
        for a, e in zip(value.shape, shape, strict=True)
    ):
        return b.adopt(value.expr, shape)
    return expand(b, value, shape, "broadcast")


def _identical(a: Extent, e: Extent) -> bool:
    a, e = ex.plain(a), ex.plain(e)
    return a == e if isinstance(a, int) or isinstance(e, int) else tvm_ffi.structural_equal(a, e)
