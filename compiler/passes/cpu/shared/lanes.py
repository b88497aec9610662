"""Lanes of vectors that change places, and vectors that become one number."""

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.building import alloc, emit
from compiler.tir.exprs import Expr, const, load


def whole(lanes: int, first: int = 0) -> Expr:
    """The index of a vector in a buffer of one axis."""
    return prim.Ramp(const(first), const(1), lanes) if lanes > 1 else const(first)


def lanes_of(vector: Expr) -> int:
    """How many elements a vector has, 1 of a scalar."""
    return int(vector.ty.dtype.lanes)


def shuffled(vectors: Sequence[Expr], lanes: Sequence[int]) -> Expr:
    """A vector of these lanes of the vectors, which are counted through."""
    # TVM takes no more lanes than the vectors have.
    times = -(-len(lanes) // sum(map(lanes_of, vectors)))
    return prim.Shuffle([*vectors] * times, [tirx.const(lane, "int32") for lane in lanes])


def kept(vector: Expr, dtype: str) -> Expr:
    """The vector in a buffer, which LLVM turns into a register: an expression is computed anew
    wherever it stands.
    """
    lanes = lanes_of(vector)
    buffer = alloc([lanes], dtype, "vector")
    emit(tirx.BufferStore(buffer, vector, [whole(lanes)]))
    return load(buffer, [whole(lanes)])


def folded(vectors: Sequence[Expr], combine: Callable[[Expr, Expr], Expr], dtype: str) -> Expr:
    """All lanes of the vectors, a power of two each, combined to one number: vectors in pairs, then
    the halves of the last one.

    Of 64 numbers six operations wait for each other, where one after the other 63 would.
    """
    values = list(vectors)
    while len(values) > 1:
        values = [
            kept(combine(one, other), dtype)
            for one, other in zip(values[::2], values[1::2], strict=True)
        ]
    (value,) = values
    while (half := lanes_of(value) // 2) > 0:
        low, high = (shuffled([value], range(first, first + half)) for first in (0, half))
        value = kept(combine(low, high), dtype)
    return value


def folded_each(vectors: Sequence[Expr], combine: Callable[[Expr, Expr], Expr], dtype: str) -> Expr:
    """The lanes of each vector combined to one number, lane i of the result being that of vector i.
    There are as many vectors as a vector has lanes, a power of two.

    Halves are combined as `folded` does. Two vectors of half the numbers then share one, so that
    8 vectors take 7 operations where one by one they take 24, with the same bits.
    """
    values, lanes = list(vectors), len(vectors)
    while (part := len(values)) > 1:
        half = part // 2
        # Every part of a vector holds what is left of one of the given vectors.
        low = [
            first + side + i
            for first in range(0, lanes, part)
            for side in (0, lanes)
            for i in range(half)
        ]
        high = [lane + half for lane in low]
        # Vectors half of the list apart share one, which puts the numbers into order.
        values = [
            kept(combine(shuffled([one, other], low), shuffled([one, other], high)), dtype)
            for one, other in zip(values[:half], values[half:], strict=True)
        ]
    return values[0]
