"""Shuffles and reductions of the lanes of vectors."""

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.building import alloc, emit
from compiler.tir.exprs import Expr, const, load


def vector_index(lanes: int, first: Expr | int = 0) -> Expr:
    """The index of `lanes` elements from `first` on in a buffer of one axis."""
    begin = const(first) if isinstance(first, int) else first
    return prim.Ramp(begin, const(1), lanes) if lanes > 1 else begin


def lanes_of(vector: Expr) -> int:
    """The number of elements of a vector, 1 of a scalar."""
    return int(vector.ty.dtype.lanes)


def shuffle(vectors: Sequence[Expr], lanes: Sequence[int]) -> Expr:
    """A vector of these lanes, numbered through all of the vectors."""
    # TVM takes no more lanes than the vectors have.
    times = -(-len(lanes) // sum(map(lanes_of, vectors)))
    return prim.Shuffle([*vectors] * times, [tirx.const(lane, "int32") for lane in lanes])


def keep_in_register(vector: Expr, dtype: str) -> Expr:
    """Emit a store of the vector to a buffer, which LLVM turns into a register, and return its
    load: an expression is computed again wherever it is used.
    """
    lanes = lanes_of(vector)
    buffer = alloc([lanes], dtype, "vector")
    emit(tirx.BufferStore(buffer, vector, [vector_index(lanes)]))
    return load(buffer, [vector_index(lanes)])


def reduce_lanes(
    vectors: Sequence[Expr], combine: Callable[[Expr, Expr], Expr], dtype: str
) -> Expr:
    """Combine all lanes of the vectors, a power of two each, to one number: vectors in pairs, then
    the halves of the last one.

    A chain of six dependent operations reduces 64 elements; one after the other it is 63.
    """
    values = list(vectors)
    while len(values) > 1:
        values = [
            keep_in_register(combine(lhs, rhs), dtype)
            for lhs, rhs in zip(values[::2], values[1::2], strict=True)
        ]
    (value,) = values
    while (half := lanes_of(value) // 2) > 0:
        low, high = (shuffle([value], range(first, first + half)) for first in (0, half))
        value = keep_in_register(combine(low, high), dtype)
    return value


def reduce_each(vectors: Sequence[Expr], combine: Callable[[Expr, Expr], Expr], dtype: str) -> Expr:
    """Combine the lanes of each vector to one number, which is lane i of the result for vector i.
    There are as many vectors as a vector has lanes, a power of two.

    Halves are combined in the order of `reduce_lanes`, so that results have the same bits, but two
    half-filled vectors then share one: 8 vectors take 7 operations instead of 24.
    """
    values, lanes = list(vectors), len(vectors)
    while (part := len(values)) > 1:
        half = part // 2
        # Each part of a vector holds the partial results of one argument.
        low = [
            first + side + i
            for first in range(0, lanes, part)
            for side in (0, lanes)
            for i in range(half)
        ]
        high = [lane + half for lane in low]
        # Vectors half of the list apart share one, which puts the results into order.
        values = [
            keep_in_register(combine(shuffle([lhs, rhs], low), shuffle([lhs, rhs], high)), dtype)
            for lhs, rhs in zip(values[:half], values[half:], strict=True)
        ]
    return values[0]
