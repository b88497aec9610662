"""The transforms of Winograd's form, one vector of channels at a time.

Both apply a small matrix along the columns and then along the rows of a tile. They are written out
without a loop, with the sums that several results share computed once: 144 multiply-adds and
additions for a tile of inputs, 100 for a tile of results. Between columns and rows a tile of up to
36 vectors is on the stack, in L1: more than any register file holds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from compiler.passes.cpu.families.winograd.match import Winograd
from compiler.passes.cpu.families.winograd.program import (
    INPUT,
    OUTPUT,
    POINTS,
    REACH,
    TILE,
    factored,
)
from compiler.targets.vector_unit import LINE
from compiler.tir.building import alloc, let, let_all, otherwise, serial, store, vectorize, when
from compiler.tir.exprs import Expr, Table, const, load, substitute


@dataclass(frozen=True)
class Points:
    """A buffer of [36 points, tiles, channels], flat: `stride` elements from a point to the next.

    A transform walks the points of one tile. If they lay a power of two apart they would drive each
    other out of L1, so a cache line lies between them.
    """

    buffer: Any
    stride: int
    channels: int

    @classmethod
    def alloc(cls, name: str, tiles: int, channels: int) -> "Points":
        """Scratch memory for so many tiles."""
        stride = tiles * channels + LINE // 4
        return cls(alloc([POINTS * stride], "float32", name, "global"), stride, channels)

    def place(self, point: Expr | int, tile: Expr) -> Expr:
        """Where the channels of a tile begin at a point."""
        return point * self.stride + tile * self.channels


def transform_input(winograd: Winograd, lanes: int, spread: Points, t: Expr, at: Table) -> None:
    """Write to `spread` the 6x6 inputs of the tile `at`, which is number `t`, transformed.

    Neighbouring tiles share inputs, which each of them reads again: they are in the cache.
    """
    with serial(winograd.depth // lanes, "strip") as strip:

        def emit(read: Callable[[int, int, Expr], Expr]) -> None:
            for point, lane, value in _transformed(INPUT, lanes, read):
                store(spread.buffer, value, spread.place(point, t) + strip * lanes + lane)

        # Most tiles of a large image touch no padding: they need no test for each place, and are
        # transformed as they are read.
        with when(_interior(winograd, at)):

            def inner(row: int, column: int, lane: Expr) -> Expr:
                return _input_at(winograd, at, const(row), const(column), strip * lanes + lane)

            emit(inner)
        with otherwise():
            given = alloc([POINTS, lanes], "float32", "given")
            _read_tile(winograd, lanes, given, strip, at)
            emit(lambda row, column, lane: load(given, [row * REACH + column, lane]))


def _input_at(winograd: Winograd, at: Table, row: Expr, column: Expr, c: Expr) -> Expr:
    """Channel `c` of the input at a row and column of the tile `at`."""
    i, j = (axis.var for axis in winograd.source.reduced)
    channel = winograd.source.spatial[-1].var
    return substitute(winograd.value, {**at, i: row, j: column, channel: c})


def _interior(winograd: Winograd, at: Table) -> Expr:
    """Whether no input of the tile is padding: neither its first corner nor its last one."""
    i, j = (axis.var for axis in winograd.source.reduced)
    corners = (const(0), const(REACH - 1))
    return tirx.all(*(substitute(winograd.inside, {**at, i: c, j: c}) for c in corners))


def _read_tile(winograd: Winograd, lanes: int, given: Any, strip: Expr, at: Table) -> None:
    """given[row * 6 + column, lane]: the inputs of a tile, zeros in place of padding."""
    i, j = (axis.var for axis in winograd.source.reduced)
    with serial(REACH, "row") as row, serial(REACH, "column") as column:
        place = row * REACH + column
        with (
            when(substitute(winograd.inside, {**at, i: row, j: column})),
            vectorize(lanes) as lane,
        ):
            store(given, _input_at(winograd, at, row, column, strip * lanes + lane), place, lane)
        with otherwise(), vectorize(lanes) as lane:
            store(given, 0, place, lane)


def transform_output(
    winograd: Winograd,
    lanes: int,
    summed: Points,
    t: Expr,
    at: Table,
    size: Sequence[Expr],
    columns: tuple[Expr, Expr],
) -> None:
    """The 4x4 results of the tile `at` from the points of tile `t`, through the epilogue.

    size: rows and columns of the result; results of a tile past them are dropped. columns: the
    first, and how many, of which the last panel may be short.
    """
    first = tirx.truncdiv(columns[0], lanes)
    end = tirx.truncdiv(tirx.min(columns[0] + columns[1], winograd.columns), lanes)
    with serial(end - first, "some_strip") as index:
        strip = let("strip", first + index)
        results = alloc([TILE * TILE, lanes], "float32", "results")

        def read(row: int, column: int, lane: Expr, strip: Expr = strip) -> Expr:
            place = summed.place(row * REACH + column, t) + strip * lanes
            return load(summed.buffer, [place + lane])

        for place, lane, value in _transformed(OUTPUT, lanes, read):
            store(results, value, place, lane)
        _write_tile(winograd, lanes, results, strip, at, size)


def _write_tile(
    winograd: Winograd, lanes: int, results: Any, strip: Expr, at: Table, size: Sequence[Expr]
) -> None:
    """Write the 4x4 results that lie inside the image, through the epilogue."""
    n, y, x = (at[axis.var] for axis in winograd.source.spatial[:3])
    *outer, channel = (axis.var for axis in winograd.anchored.anchor.spatial)
    with serial(TILE * TILE, "place") as place:
        # Extents that are no multiple of 4 leave the last tiles part empty.
        row, column = y * TILE + place // TILE, x * TILE + place % TILE
        with when(tirx.all(row < size[0], column < size[1])):
            here = let_all(dict(zip(outer, [n, row, column], strict=True)))
            with vectorize(lanes) as lane:
                result, bound = load(results, [place, lane]), {channel: strip * lanes + lane}
                winograd.anchored.epilogue.store(result, {**here, **bound})


def _transformed(
    matrix: np.ndarray, lanes: int, given: Callable[[int, int, Expr], Expr]
) -> Iterator[tuple[int, Expr, Expr]]:
    """(place, lane, value) of matrix @ given @ matrix.T, row by row, one vector statement each.

    given: what is at a row, a column and a lane of a tile of 6x6 vectors.
    """
    rows = matrix.shape[0]
    # Unrolled, so that every factor is a constant, and 0, 1 and -1 cost nothing.
    half = alloc([rows * REACH, lanes], "float32", "half")
    for j in range(REACH):

        def column(i: int, lane: Expr, j: int = j) -> Expr:
            return given(i, j, lane)

        for u, lane, value in _product(matrix, lanes, column):
            store(half, value, u * REACH + j, lane)
    for u in range(rows):

        def row(j: int, lane: Expr, u: int = u) -> Expr:
            return load(half, [u * REACH + j, lane])

        for v, lane, value in _product(matrix, lanes, row):
            yield u * rows + v, lane, value


def _product(
    matrix: np.ndarray, lanes: int, given: Callable[[int, Expr], Expr]
) -> Iterator[tuple[int, Expr, Expr]]:
    """(row, lane, value) of matrix @ given, which holds six vectors."""
    sums, rows = factored(matrix)
    shared = alloc([len(sums), lanes], "float32", "shared")
    for place, factors in enumerate(sums):
        with vectorize(lanes) as lane:
            store(
                shared, _weighted_sum(factors, [given(i, lane) for i in range(REACH)]), place, lane
            )
    for u, factors in enumerate(rows):
        with vectorize(lanes) as lane:
            values = [load(shared, [place, lane]) for place in range(len(sums))]
            yield u, lane, _weighted_sum(factors, values + [given(i, lane) for i in range(REACH)])


def _weighted_sum(factors: np.ndarray, values: Sequence[Expr]) -> Expr:
    """The sum of factors[i] * values[i], without the multiplications by 0, 1 and -1.

    It begins with a value as it is, where there is one, so that all others are multiply-adds.
    """
    # LLVM may not drop the others by itself: 0 * value is not 0 for infinities.
    terms = [
        (float(factor), value) for factor, value in zip(factors, values, strict=True) if factor
    ]
    terms.sort(key=lambda term: (term[0] != 1, term[0] < 0))
    total: Expr | None = None
    for factor, value in terms:
        term = value if abs(factor) == 1 else tirx.const(abs(factor), "float32") * value
        if total is None:
            assert factor > 0, "a sum of these matrices has a positive term"
            total = term
        else:
            total = total + term if factor > 0 else total - term
    assert total is not None
    return total
