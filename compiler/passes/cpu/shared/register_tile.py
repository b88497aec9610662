"""How large the register tile of a matmul is on a vector unit, and how wide a panel of its weights.

A register tile is some rows by a few vectors of accumulators that stay in registers over the whole
depth. Each step of the depth reads one row of the panel, as wide as the tile, and one element of
each row of the left side.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from tvm import tirx

from compiler.targets.vector_unit import VectorUnit
from compiler.tir import building
from compiler.tir.exprs import Expr, as_int, const, load
from compiler.tir.loops import (
    Stmt,
    allocate,
    seq,
    serial,
    store,
    strips,
    unrolled,
    vectorized,
    when,
)

K = TypeVar("K")
"""How a place of a sum is named."""


# Time of a column by the vectors of its panel, relative to panels of three: 100 rows on Sapphire
# Rapids.
_TIME = {2: 1.06, 3: 1.0, 4: 1.02}


def rows_for(unit: VectorUnit, vectors: int) -> int:
    """How many rows of `vectors` vectors of accumulators the registers hold, beside one row of the
    panel and one broadcast element of the left side.
    """
    # Of 32 registers one more row would fit. It is left out: an accumulator that LLVM has to keep
    # in memory after all costs more than a row gains. Of four vectors it would be one of six rows.
    spare = 1 if unit.registers >= 32 and vectors < 4 else 0
    return max((unit.registers - vectors - 1) // vectors - spare, 2)


def register_tile(unit: VectorUnit) -> tuple[int, int]:
    """(MR, NR): 6x16 on AVX2, 13x32 on AVX-512."""
    vectors = 2
    return rows_for(unit, vectors), unit.lanes(32) * vectors


def panel_widths(unit: VectorUnit) -> tuple[int, ...]:
    """The columns that a panel may have: two or three vectors, or four where loads are the limit:
    of all tiles 6x64 loads the least for each multiplication.
    """
    # Two rows of three vectors do not fit 8 registers.
    lanes = unit.lanes(32)
    if unit.outruns_cache:
        return 2 * lanes, 3 * lanes, 4 * lanes
    return (2 * lanes, 3 * lanes) if unit.registers >= 16 else (2 * lanes,)


def panel_width(unit: VectorUnit, columns: int) -> int:
    """Columns of a panel: the width that leaves the fewest columns of the last panel empty.

    Of equal widths the wider one, three vectors, except without fused multiply-adds. Where loads
    are the limit, the width whose panels together take the least time, empty columns included.
    """
    if unit.outruns_cache:
        lanes = unit.lanes(32)
        return min(
            panel_widths(unit),
            key=lambda width: -(-columns // width) * width * _TIME[width // lanes],
        )
    # A 4x24 tile takes 20 instructions for 12 multiply-adds where 6x16 takes 22, which gained up to
    # 5 %. Without fused multiply-adds each multiplication takes a register of its own first.
    return min(
        panel_widths(unit),
        key=lambda width: (-(-columns // width) * width, -width if unit.fma else width),
    )


def across(width: int, lanes: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """body(lane) for every lane of `width`, in vectors of `lanes`; LLVM takes a width that is no
    power of two badly.
    """

    def vector(start: int) -> Stmt:
        return vectorized(lanes, lambda lane: body(const(start) + lane))

    return seq(*(vector(start) for start in range(0, width, lanes)))


def tile(rows: int, width: int, lanes: int, body: Callable[[int, Expr], Stmt]) -> Stmt:
    """body(i, lane) for every one of the rows and lane of `width`."""
    return seq(*(across(width, lanes, partial(body, i)) for i in range(rows)))


def in_panel(
    panel: Expr, columns: int, width: int, lanes: int, body: Callable[[Expr], Stmt]
) -> Stmt:
    """body(lane) for every column that the panel has of `columns`: `width`, fewer in the last."""
    full, rest = columns // width, columns % width
    whole = strips(const(width), lanes, body, "lane")
    return (
        when(panel < const(full), whole, strips(const(rest), lanes, body, "lane"))
        if rest
        else whole
    )


def panel_columns(panel: Expr, columns: int, width: int, lanes: int) -> Iterator[Expr]:
    """Every column that the panel holds of `columns`: `width`, fewer in the last one."""
    full, rest = columns // width, columns % width
    if rest == 0:
        yield from building.strips(width, lanes, "lane")
        return
    with building.when(panel < full):
        yield from building.strips(width, lanes, "lane")
    with building.otherwise():
        yield from building.strips(rest, lanes, "lane")


def least(sizes: Sequence[int], needed: Expr, body: Callable[[int], Stmt]) -> Stmt:
    """body(size) for the first of the rising sizes that is not below `needed`, else for
    the last.
    """
    *smaller, most = sizes
    code = body(most)
    for size in reversed(smaller):
        code = when(needed <= const(size), body(size), code)
    return code


def along(
    length: Expr, together: int, multiple: int = 1
) -> Callable[[Callable[[Expr], Stmt]], Stmt]:
    """The loop body(k) for k < length, which is a multiple of `multiple`: `together` steps in a row
    between two looks at its end.
    """
    known = as_int(length)

    def loop(body: Callable[[Expr], Stmt]) -> Stmt:
        groups = (
            const(known // together)
            if known is not None
            else tirx.truncdiv(length, const(together))
        )
        some = serial(
            groups, lambda g: unrolled(together, lambda u: body(g * const(together) + u)), "k"
        )
        if multiple % together == 0:
            return some
        rest = (
            const(known % together) if known is not None else tirx.truncmod(length, const(together))
        )
        return seq(some, serial(rest, lambda k: body(groups * const(together) + k), "k"))

    return loop


def products(
    rows: int,
    width: int,
    lanes: int,
    loop: Callable[[Callable[[K], Stmt]], Stmt],
    left: Callable[[int, K], Expr],
    right: Callable[[K, Expr], Expr],
    begin: Callable[[int, Expr], Expr] | None,
    finish: Callable[[int, Expr, Expr], Stmt],
) -> Stmt:
    """sums[i, lane] = begin(i, lane) + the sum over every k of `loop` of left(i, k) * right(k,
    lane), each given to `finish`.

    Sums are rows x width, in vectors of `lanes`, and stay in registers; `loop(body)` runs body(k)
    for every k.
    """
    sums, allocation = allocate([rows, width], "float32", "acc")
    each = partial(tile, rows, width, lanes)

    def step(k: K) -> Stmt:
        return each(
            lambda i, lane: store(
                sums, load(sums, [const(i), lane]) + left(i, k) * right(k, lane), const(i), lane
            )
        )

    zero = tirx.const(0, "float32")
    clear = each(
        lambda i, lane: store(sums, zero if begin is None else begin(i, lane), const(i), lane)
    )
    return seq(
        allocation,
        clear,
        loop(step),
        each(lambda i, lane: finish(i, lane, load(sums, [const(i), lane]))),
    )
