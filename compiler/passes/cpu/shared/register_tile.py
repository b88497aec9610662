"""Tiles and panels: how large they are on a machine, loops over what they hold, and the innermost
loop of products.
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


def rows_for(unit: VectorUnit, vectors: int) -> int:
    """How many rows of `vectors` vectors of sums the registers hold beside one row of the right
    side and two to spare.
    """
    return max((unit.registers - vectors - 1) // vectors - (1 if unit.registers >= 32 else 0), 2)


def register_tile(unit: VectorUnit) -> tuple[int, int]:
    """(MR, NR): 6x16 on AVX2, 13x32 on AVX-512."""
    vectors = 2
    return rows_for(unit, vectors), unit.lanes(32) * vectors


def panel_widths(unit: VectorUnit) -> tuple[int, ...]:
    """The columns that a panel may have: two or three vectors."""
    lanes = unit.lanes(32)
    return (2 * lanes, 3 * lanes) if unit.registers >= 16 else (2 * lanes,)


def panel_width(unit: VectorUnit, columns: int) -> int:
    """Columns of a panel: as many as leave the fewest of the last panel's empty.

    Of equals three vectors, which take fewer loads for a product, but two where a product takes a
    register before it is added.
    """
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
