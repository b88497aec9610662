"""The transforms of Winograd's form, one vector of channels at a time.

Both apply a small matrix along the columns and then along the rows of a tile. They are written out
without a loop, and sums that several results share are computed once: 144 multiply-adds and
additions for a tile of inputs, 100 for a tile of results. Between columns and rows a tile of up to
36 vectors, more than there are registers, is on the stack, in L1.
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
    factor_transform,
)
from compiler.targets.vector_unit import LINE
from compiler.tir.building import alloc, let, let_all, otherwise, serial, store, vectorize, when
from compiler.tir.exprs import Expr, Table, const, load, substitute


@dataclass(frozen=True)
class Points:
    """A buffer of [36 points, tiles, channels], flat: `stride` elements from a point to the next.

    A transform walks the points of one tile. If they were a power of two apart they would evict
    each other from L1, so there is a cache line between them.
    """

    buffer: Any
    stride: int
    channels: int

    @classmethod
    def alloc(cls, name: str, tiles: int, channels: int) -> "Points":
        """Emit the allocation of scratch memory for `tiles` tiles."""
        stride = tiles * channels + LINE // 4
        return cls(alloc([POINTS * stride], "float32", name, "global"), stride, channels)

    def index(self, point: Expr | int, tile: Expr) -> Expr:
        """The index of the first channel of a tile at a point."""
        return point * self.stride + tile * self.channels


def transform_input(
    winograd: Winograd, lanes: int, spread: Points, t: Expr, position: Table
) -> None:
    """Emit the transformed 6x6 inputs of the tile at `position`, number `t`, stored to `spread`.

    Neighbouring tiles share inputs, which each of them reads again: they are in the cache.
    """
    with serial(winograd.depth // lanes, "strip") as strip:

        def emit(read: Callable[[int, int, Expr], Expr]) -> None:
            for point, lane, value in _apply_transform(INPUT, lanes, read):
                store(spread.buffer, value, spread.index(point, t) + strip * lanes + lane)

        # Most tiles of a large image have no padding: they need no condition for each position, and
        # are transformed as they are read.
        with when(_is_interior(winograd, position)):

            def inner(row: int, column: int, lane: Expr) -> Expr:
                return _load_input(
                    winograd, position, const(row), const(column), strip * lanes + lane
                )

            emit(inner)
        with otherwise():
            inputs = alloc([POINTS, lanes], "float32", "given")
            _read_tile(winograd, lanes, inputs, strip, position)
            emit(lambda row, column, lane: load(inputs, [row * REACH + column, lane]))


def _load_input(winograd: Winograd, position: Table, row: Expr, column: Expr, c: Expr) -> Expr:
    """Channel `c` of the input at a row and column of the tile at `position`."""
    i, j = (axis.var for axis in winograd.source.reduced)
    channel = winograd.source.spatial[-1].var
    return substitute(winograd.value, {**position, i: row, j: column, channel: c})


def _is_interior(winograd: Winograd, position: Table) -> Expr:
    """The condition that no input of the tile is padding: neither its first nor its last corner."""
    i, j = (axis.var for axis in winograd.source.reduced)
    corners = (const(0), const(REACH - 1))
    return tirx.all(*(substitute(winograd.inside, {**position, i: c, j: c}) for c in corners))


def _read_tile(winograd: Winograd, lanes: int, inputs: Any, strip: Expr, position: Table) -> None:
    """Emit inputs[row * 6 + column, lane] of a tile, zeros in place of padding."""
    i, j = (axis.var for axis in winograd.source.reduced)
    with serial(REACH, "row") as row, serial(REACH, "column") as column:
        index = row * REACH + column
        with (
            when(substitute(winograd.inside, {**position, i: row, j: column})),
            vectorize(lanes) as lane,
        ):
            store(
                inputs,
                _load_input(winograd, position, row, column, strip * lanes + lane),
                index,
                lane,
            )
        with otherwise(), vectorize(lanes) as lane:
            store(inputs, 0, index, lane)


def transform_output(
    winograd: Winograd,
    lanes: int,
    summed: Points,
    t: Expr,
    position: Table,
    size: Sequence[Expr],
    columns: tuple[Expr, Expr],
) -> None:
    """Emit the 4x4 results of the tile at `position` from the points of tile `t`, and the epilogue.

    size: rows and columns of the result; results of a tile past them are dropped. columns: (first,
    count), where the last panel may have fewer.
    """
    first = tirx.truncdiv(columns[0], lanes)
    end = tirx.truncdiv(tirx.min(columns[0] + columns[1], winograd.columns), lanes)
    with serial(end - first, "some_strip") as index:
        strip = let("strip", first + index)
        results = alloc([TILE * TILE, lanes], "float32", "results")

        def read(row: int, column: int, lane: Expr, strip: Expr = strip) -> Expr:
            begin = summed.index(row * REACH + column, t) + strip * lanes
            return load(summed.buffer, [begin + lane])

        for element, lane, value in _apply_transform(OUTPUT, lanes, read):
            store(results, value, element, lane)
        _write_tile(winograd, lanes, results, strip, position, size)


def _write_tile(
    winograd: Winograd, lanes: int, results: Any, strip: Expr, position: Table, size: Sequence[Expr]
) -> None:
    """Emit the epilogue of the 4x4 results that are inside the image."""
    n, y, x = (position[axis.var] for axis in winograd.source.spatial[:3])
    *outer, channel = (axis.var for axis in winograd.anchored.anchor.spatial)
    with serial(TILE * TILE, "place") as index:
        # Where extents are no multiple of 4, the last tiles are not full.
        row, column = y * TILE + index // TILE, x * TILE + index % TILE
        with when(tirx.all(row < size[0], column < size[1])):
            here = let_all(dict(zip(outer, [n, row, column], strict=True)))
            with vectorize(lanes) as lane:
                result, bound = load(results, [index, lane]), {channel: strip * lanes + lane}
                winograd.anchored.epilogue.store(result, {**here, **bound})


def _apply_transform(
    matrix: np.ndarray, lanes: int, read: Callable[[int, int, Expr], Expr]
) -> Iterator[tuple[int, Expr, Expr]]:
    """(index, lane, value) of matrix @ tile @ matrix.T, row by row, one vector statement each.

    read: loads the tile's element at a row, a column and a lane of 6x6 vectors.
    """
    rows = matrix.shape[0]
    # Unrolled, so that every factor is a constant, and 0, 1 and -1 take no multiplication.
    half = alloc([rows * REACH, lanes], "float32", "half")
    for j in range(REACH):

        def column(i: int, lane: Expr, j: int = j) -> Expr:
            return read(i, j, lane)

        for u, lane, value in _apply_matrix(matrix, lanes, column):
            store(half, value, u * REACH + j, lane)
    for u in range(rows):

        def row(j: int, lane: Expr, u: int = u) -> Expr:
            return load(half, [u * REACH + j, lane])

        for v, lane, value in _apply_matrix(matrix, lanes, row):
            yield u * rows + v, lane, value


def _apply_matrix(
    matrix: np.ndarray, lanes: int, read: Callable[[int, Expr], Expr]
) -> Iterator[tuple[int, Expr, Expr]]:
    """(row, lane, value) of matrix @ the six vectors that `read` loads."""
    shared_factors, rows = factor_transform(matrix)
    shared = alloc([len(shared_factors), lanes], "float32", "shared")
    for index, factors in enumerate(shared_factors):
        with vectorize(lanes) as lane:
            store(
                shared, _weighted_sum(factors, [read(i, lane) for i in range(REACH)]), index, lane
            )
    for u, factors in enumerate(rows):
        with vectorize(lanes) as lane:
            values = [load(shared, [index, lane]) for index in range(len(shared_factors))]
            yield u, lane, _weighted_sum(factors, values + [read(i, lane) for i in range(REACH)])


def _weighted_sum(factors: np.ndarray, values: Sequence[Expr]) -> Expr:
    """The sum of factors[i] * values[i], without the multiplications by 0, 1 and -1.

    It begins with a value whose factor is 1, if there is one, so that all others are multiply-adds.
    """
    # LLVM may not drop zeros by itself: 0 * inf is NaN.
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
