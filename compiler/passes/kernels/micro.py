"""The innermost loop of products: rows by vectors of sums in registers, one pass over the depth."""

from collections.abc import Callable

from tvm import tirx

from compiler.passes.machine import Machine
from compiler.passes.tir.exprs import Expr, const, load
from compiler.passes.tir.loops import Stmt, allocate, seq, serial, store, vectorized


def rows_for(machine: Machine, vectors: int) -> int:
    """How many rows of `vectors` vectors of sums the registers hold beside one row of the right side and two to spare."""
    return max((machine.registers - vectors - 1) // vectors - (1 if machine.registers >= 32 else 0), 2)


def register_tile(machine: Machine) -> tuple[int, int]:
    """(MR, NR): 6x16 on AVX2, 13x32 on AVX-512."""
    vectors = 2
    return rows_for(machine, vectors), machine.lanes(32) * vectors


def panel_widths(machine: Machine) -> tuple[int, ...]:
    """The columns that a panel may have: two or three vectors."""
    lanes = machine.lanes(32)
    return (2 * lanes, 3 * lanes) if machine.registers >= 16 else (2 * lanes,)


def panel_width(machine: Machine, columns: int) -> int:
    """Columns of a panel: two vectors, or three where that leaves fewer of the last panel's empty."""
    return min(panel_widths(machine), key=lambda width: (-(-columns // width) * width, width))


def across(width: int, lanes: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """body(lane) for every lane of `width`, in vectors of `lanes`; LLVM takes a width that is no power of two badly."""
    return seq(*(vectorized(lanes, lambda lane, start=start: body(const(start) + lane)) for start in range(0, width, lanes)))  # type: ignore[misc]


def products(
    rows: int,
    width: int,
    lanes: int,
    length: Expr,
    left: Callable[[int, Expr], Expr],
    right: Callable[[Expr, Expr], Expr],
    begin: Callable[[int, Expr], Expr] | None,
    finish: Callable[[int, Expr, Expr], Stmt],
) -> Stmt:
    """sums[i, lane] = begin(i, lane) + the sum over k < length of left(i, k) * right(k, lane), each given to `finish`.

    `lane` counts up to `width`, in vectors of `lanes`.
    """
    sums, allocation = allocate([rows, width], "float32", "acc")

    def each(body: Callable[[int, Expr], Stmt]) -> Stmt:
        return seq(*(across(width, lanes, lambda lane, i=i: body(i, lane)) for i in range(rows)))  # type: ignore[misc]

    def step(k: Expr) -> Stmt:
        return each(lambda i, lane: store(sums, load(sums, [const(i), lane]) + left(i, k) * right(k, lane), const(i), lane))

    zero = tirx.const(0, "float32")
    clear = each(lambda i, lane: store(sums, zero if begin is None else begin(i, lane), const(i), lane))
    return seq(allocation, clear, serial(length, step, "k"), each(lambda i, lane: finish(i, lane, load(sums, [const(i), lane]))))
