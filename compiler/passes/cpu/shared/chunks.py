"""Chunks of a long sum, each summed in registers and then added to the sum of those before it.

The rounding error of a sum of n products in one accumulator grows with n, that of chunks with the
length of a chunk and the number of chunks (Higham, Accuracy and Stability of Numerical Algorithms,
2002, section 4.2).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from tvm import tirx

from compiler.tir.building import let, nest, otherwise, serial, steps, store, when
from compiler.tir.exprs import Expr, Table, as_int, const, load
from compiler.tir.stages import Axis

CHUNK = 128
"""Multiply-accumulates of a chunk, about: 768 of them have 0.38 of the error of one accumulator,
3,072 have 0.21 of it.
"""

LEAST = CHUNK // 4
"""Multiply-accumulates of a chunk at least: adding up shorter ones takes too long."""


def chunk_length(depth: int, multiple: int = 1) -> int:
    """Multiply-accumulates of a chunk of a sum over `depth`: all if there are fewer than one and a
    half of CHUNK, else a multiple of `multiple`; all chunks but the last have the same length.
    """
    number = round(depth / CHUNK)
    return depth if number < 2 else -(-depth // (number * multiple)) * multiple


def emit_chunks(length: Expr, chunk: int) -> Iterator[tuple[Expr, Expr]]:
    """(begin, length) of every chunk of a sum, in a loop unless there is only one."""
    known = as_int(length)
    if known is not None and known <= chunk:
        yield const(0), length
        return
    with serial(tirx.ceildiv(length, const(chunk)), "chunk") as index:
        begin = let("begin", index * chunk)
        equal = known is not None and known % chunk == 0
        yield begin, const(chunk) if equal else let("count", tirx.min(chunk, length - begin))


def outer_axes(extents: Sequence[int | None]) -> int:
    """The number of outer axes of a sum that are loops over chunks; a chunk is a sum over the inner
    axes, which are about as long as one chunk, or the innermost axis. 0 where that is too short.
    """
    outer = len(extents) - 1
    while outer and _is_one_chunk(extents[outer - 1 :]):
        outer -= 1
    return outer if outer == 0 or _length(extents[outer:], LEAST) >= LEAST else 0


def is_chunked(extents: Sequence[int | None]) -> bool:
    """Tell whether a sum over axes of these extents, None where unknown, has several chunks."""
    return outer_axes(extents) > 0 or (len(extents) == 1 and not _is_one_chunk(extents))


def _is_one_chunk(extents: Sequence[int | None]) -> bool:
    depth = _length(extents, 2 * CHUNK)
    return chunk_length(depth) == depth


def _length(extents: Sequence[int | None], unknown: int) -> int:
    """The length of a sum, where unknown extents count as `unknown`."""
    return prod(unknown if extent is None else extent for extent in extents)


Positions = Callable[[], Iterator[Table]]
"""Emits loops over the positions of a chunk."""


def over_chunks(
    axes: Sequence[Axis], unroll: int, count: Callable[[Expr], Expr] = lambda extent: extent
) -> Iterator[tuple[Expr, Positions]]:
    """(number, positions) of every chunk of a sum over the axes, in loops over the chunks, of which
    there may be a single one; the first alone has the number 0.

    unroll: as `together` of `steps`; count: of an extent, what loops run to, but for the innermost
    axis.
    """
    outer = outer_axes([as_int(axis.extent) for axis in axes])
    *around, last = axes
    loops = [*(replace(axis, extent=count(axis.extent)) for axis in around), last]
    length = chunk_length(as_int(last.extent) or CHUNK, unroll)
    for position in nest(loops[:outer]):
        number = const(0)
        for axis in axes[:outer]:
            number = number * axis.extent + position[axis.var]
        if outer < len(around):
            yield number, partial(over_positions, loops[outer:], unroll, position)
            continue
        for begin, size in emit_chunks(last.extent, length):
            positions = partial(_along, last.var, begin, size, unroll, position)
            yield number * last.extent + begin, positions


def over_positions(axes: Sequence[Axis], unroll: int, around: Table) -> Iterator[Table]:
    """Loops over the axes, at a position of those around them; unroll: as `together` of `steps`."""
    *within, last = axes
    for position in nest(within, around):
        yield from _along(last.var, const(0), last.extent, unroll, position)


def _along(var: Expr, begin: Expr, count: Expr, unroll: int, position: Table) -> Iterator[Table]:
    for k in steps(count, unroll):
        yield {**position, var: begin + k}


def add_chunk(
    results: Any, number: Expr, values: Callable[[], Iterator[tuple[Expr, Expr]]]
) -> None:
    """Store (value, index) of a chunk in `results`, or add them where it is not the first one.

    Results that are cleared ahead of a loop over chunks would be kept in registers through the
    loop, in addition to the accumulators.
    """
    with when(number == 0):
        for value, index in values():
            store(results, value, index)
    with otherwise():
        for value, index in values():
            store(results, load(results, [index]) + value, index)
