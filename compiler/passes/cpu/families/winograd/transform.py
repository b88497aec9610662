"""The transforms of Winograd's form, one vector of channels at a time.

Both apply a small matrix along the rows and the columns of a tile. They are written out without a
loop, as the zeros and ones of the matrices leave less than half of the operations: 360 for a tile
of inputs in place of 792, 200 for a tile of results in place of 440. Between rows and columns a
tile of up to 36 vectors is on the stack, in L1: more than any register file holds.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from compiler.passes.cpu.families.winograd.match import Winograd
from compiler.passes.cpu.families.winograd.program import INPUT, OUTPUT, POINTS, REACH, TILE
from compiler.tir.building import alloc, let, let_all, otherwise, serial, store, vectorized, when
from compiler.tir.exprs import Expr, Table, const, load, substitute


def transform_input(
    winograd: Winograd, lanes: int, spread: Any, most: int, t: Expr, at: Table
) -> None:
    """spread[point, t, channel]: the 6x6 inputs of the tile `at`, transformed.

    Neighbouring tiles share inputs, which each of them reads again: they are in the cache.
    """
    with serial(winograd.depth // lanes, "strip") as strip:
        given = alloc([POINTS, lanes], "float32", "given")
        # Most tiles of a large image touch no padding and need no test for each place.
        with when(_interior(winograd, at)):
            _read_tile(winograd, lanes, given, strip, at, padded=False)
        with otherwise():
            _read_tile(winograd, lanes, given, strip, at, padded=True)
        for point, lane, value in _transformed(INPUT, lanes, given):
            begin = (point * most + t) * winograd.depth + strip * lanes
            store(spread, value, begin + lane)


def _interior(winograd: Winograd, at: Table) -> Expr:
    """Whether no input of the tile is padding: neither its first corner nor its last one."""
    i, j = (axis.var for axis in winograd.source.reduced)
    corners = (const(0), const(REACH - 1))
    return tirx.all(*(substitute(winograd.inside, {**at, i: c, j: c}) for c in corners))


def _read_tile(
    winograd: Winograd, lanes: int, given: Any, strip: Expr, at: Table, padded: bool
) -> None:
    """given[row * 6 + column, lane]: the inputs of a tile, zeros in place of padding."""
    channel, (i, j) = winograd.source.spatial[-1].var, [a.var for a in winograd.source.reduced]
    with serial(REACH, "row") as row:
        with serial(REACH, "column") as column:
            place, here = row * REACH + column, {**at, i: row, j: column}
            with when(substitute(winograd.inside, here) if padded else True):
                with vectorized(lanes) as lane:
                    value = substitute(winograd.value, {**here, channel: strip * lanes + lane})
                    store(given, value, place, lane)
            with otherwise():
                with vectorized(lanes) as lane:
                    store(given, 0, place, lane)


def transform_output(
    winograd: Winograd,
    lanes: int,
    summed: Any,
    most: int,
    t: Expr,
    at: Table,
    size: Sequence[Expr],
    columns: tuple[Expr, Expr],
) -> None:
    """The 4x4 results of the tile `at` from summed[point, t, column], through the epilogue.

    size: rows and columns of the result; results of a tile past them are dropped. columns: the
    first, and how many, of which the last panel may be short.
    """
    first = tirx.truncdiv(columns[0], lanes)
    end = tirx.truncdiv(tirx.min(columns[0] + columns[1], winograd.columns), lanes)
    with serial(end - first, "some_strip") as index:
        strip = let("strip", first + index)
        given = alloc([POINTS, lanes], "float32", "given")
        results = alloc([TILE * TILE, lanes], "float32", "results")
        for point in range(POINTS):
            begin = (point * most + t) * winograd.padded + strip * lanes
            with vectorized(lanes) as lane:
                store(given, load(summed, [begin + lane]), point, lane)
        for point, lane, value in _transformed(OUTPUT, lanes, given):
            store(results, value, point, lane)
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
            with vectorized(lanes) as lane:
                result, bound = load(results, [place, lane]), {channel: strip * lanes + lane}
                winograd.anchored.epilogue.store(result, {**here, **bound})


def _transformed(matrix: np.ndarray, lanes: int, given: Any) -> Iterator[tuple[int, Expr, Expr]]:
    """(point, lane, value) of matrix @ given @ matrix.T, row by row, one vector statement each.

    given: a tile of 6x6 vectors.
    """
    rows = matrix.shape[0]
    # Unrolled, so that every factor is a constant, and 0, 1 and -1 cost nothing.
    half = alloc([rows * REACH, lanes], "float32", "half")
    for u in range(rows):
        for j in range(REACH):
            with vectorized(lanes) as lane:
                column = [load(given, [i * REACH + j, lane]) for i in range(REACH)]
                store(half, _weighted_sum(matrix[u], column), u * REACH + j, lane)
    for u in range(rows):
        for v in range(rows):
            with vectorized(lanes) as lane:
                row = [load(half, [u * REACH + j, lane]) for j in range(REACH)]
                yield u * rows + v, lane, _weighted_sum(matrix[v], row)


def _weighted_sum(factors: np.ndarray, values: Sequence[Expr]) -> Expr:
    """The sum of factors[i] * values[i], without the multiplications by 0, 1 and -1."""
    total: Expr | None = None
    for factor, value in zip(map(float, factors), values, strict=True):
        # LLVM may not drop these by itself: 0 * value is not 0 for infinities.
        if factor == 0:
            continue
        term = value if abs(factor) == 1 else tirx.const(abs(factor), "float32") * value
        if total is None:
            total = term if factor > 0 else tirx.const(0, "float32") - term
        else:
            total = total + term if factor > 0 else total - term
    assert total is not None
    return total
