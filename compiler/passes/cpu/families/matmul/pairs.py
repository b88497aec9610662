"""The form of the loops for operands of bfloat16: a step of the depth is a pair of neighbours.

The weights lie in panels as 32-bit integers, the first number of a pair in their lower half. Rows
of the left side are gathered and rounded, so that the innermost loop reads one pair of each: by an
instruction for pairs as two numbers of 16 bits, else as two of float32, for two multiply-adds.
"""

from collections.abc import Callable
from typing import Any

from tvm import tirx

from compiler.passes.cpu.shared.bfloats import PAIR_DTYPE, add_dot, load_pair, load_vector
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import across, steps, store
from compiler.tir.exprs import Expr, const, load

STAGE = "bfloat16_product"
"""Name of the program's stage, by which the kernel is found."""

_UPPER = -(1 << 16)


def weight_at(panels: Any, panel: Expr, k: Expr, first: Expr | int, lane: Expr) -> Expr:
    """Number `k` of a run whose pairs begin at row `first` of the panel, as float32."""
    pair = panels[panel, first + k // 2, lane]
    shifted = tirx.Select(
        k % 2 == 0, pair << tirx.const(16, PAIR_DTYPE), pair & tirx.const(_UPPER, PAIR_DTYPE)
    )
    return tirx.reinterpret("float32", shifted)


def emit_steps(
    acc: Any,
    unit: VectorUnit,
    left: tuple[Any, list[Expr]],
    right: tuple[Any, Expr],
    loop: tuple[Expr, int, int, Callable[[Expr], None] | None],
) -> None:
    """Add the products of a tile to `acc`, flat.

    left: the gathered numbers, and where each row begins, in pairs; right: the panels, and the
    first element; loop: the pairs, and the arguments of `steps`.
    """
    length, together, multiple, between = loop
    rows = len(left[1])
    width = int(acc.shape[0]) // rows
    for k in steps(length, together, multiple, between=between):
        if unit.bfloat16_dot is None:
            _emit_two(acc, unit, left, (right[0], right[1] + k * width), width, k)
        else:
            _emit_one(acc, unit, left, (right[0], right[1] + k * width), width, k)


def _emit_one(
    acc: Any, unit: VectorUnit, left: Any, right: tuple[Any, Expr], width: int, k: Expr
) -> None:
    """One step by one instruction for each vector."""
    lanes, (numbers, starts) = unit.lanes(32), left
    firsts = range(0, width, lanes)
    weights = [load_vector(right[0], right[1] + first, lanes) for first in firsts]
    for row, start in enumerate(starts):
        pair = load_pair(numbers, (start + k) * 2)
        for first, weight in zip(firsts, weights, strict=True):
            add_dot(acc, row * width + first, weight, pair, lanes)


def _emit_two(
    acc: Any, unit: VectorUnit, left: Any, right: tuple[Any, Expr], width: int, k: Expr
) -> None:
    """One step by two multiply-adds for each vector."""
    numbers, starts = left
    for odd in (0, 1):
        for row, start in enumerate(starts):
            for lane in across(width, unit.lanes(32)):
                pair = load(right[0], [right[1] + lane])
                bits = (
                    pair & tirx.const(_UPPER, PAIR_DTYPE)
                    if odd
                    else pair << tirx.const(16, PAIR_DTYPE)
                )
                weight = tirx.reinterpret("float32", bits)
                number = load(numbers, [(start + k) * 2 + odd])
                place = const(row * width) + lane
                store(acc, load(acc, [place]) + number * weight, place)
