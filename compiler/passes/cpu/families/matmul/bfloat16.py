"""The innermost loops of bfloat16 operands: a step of the depth is a dot product of two elements.

Panels of weights are 32-bit integers, the first element of a pair in their lower half. Rows of the
left side are gathered and rounded, so that the innermost loop reads one pair of each: two bfloat16
for an instruction that has dot products, else two float32 for two multiply-adds.
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

_UPPER_HALF = -(1 << 16)


def load_weight(panels: Any, panel: Expr, k: Expr, first: Expr | int, lane: Expr) -> Expr:
    """Element `k` of a run whose pairs begin at row `first` of the panel, as float32."""
    pair = panels[panel, first + k // 2, lane]
    shifted = tirx.Select(
        k % 2 == 0, pair << tirx.const(16, PAIR_DTYPE), pair & tirx.const(_UPPER_HALF, PAIR_DTYPE)
    )
    return tirx.reinterpret("float32", shifted)


def emit_steps(
    acc: Any,
    unit: VectorUnit,
    left: tuple[Any, list[Expr]],
    right: tuple[Any, Expr],
    loop: tuple[Expr, int, int, Callable[[Expr], None] | None],
) -> None:
    """Emit the multiply-accumulates of a tile; acc: its accumulators, flat.

    left: the gathered rows, and where each begins, in pairs; right: the panels, and the first
    element; loop: the number of pairs, and the arguments of `steps`.
    """
    length, unroll, multiple, between = loop
    rows = len(left[1])
    width = int(acc.shape[0]) // rows
    for k in steps(length, unroll, multiple, between=between):
        if unit.bfloat16_dot is None:
            _emit_multiply_adds(acc, unit, left, (right[0], right[1] + k * width), width, k)
        else:
            _emit_dots(acc, unit, left, (right[0], right[1] + k * width), width, k)


def _emit_dots(
    acc: Any, unit: VectorUnit, left: Any, right: tuple[Any, Expr], width: int, k: Expr
) -> None:
    """Emit one step, one dot product instruction for each vector."""
    lanes, (numbers, starts) = unit.lanes(32), left
    firsts = range(0, width, lanes)
    weights = [load_vector(right[0], right[1] + first, lanes) for first in firsts]
    for row, start in enumerate(starts):
        pair = load_pair(numbers, (start + k) * 2)
        for first, weight in zip(firsts, weights, strict=True):
            add_dot(acc, row * width + first, weight, pair, lanes)


def _emit_multiply_adds(
    acc: Any, unit: VectorUnit, left: Any, right: tuple[Any, Expr], width: int, k: Expr
) -> None:
    """Emit one step, two multiply-adds for each vector."""
    numbers, starts = left
    for odd in (0, 1):
        for row, start in enumerate(starts):
            for lane in across(width, unit.lanes(32)):
                pair = load(right[0], [right[1] + lane])
                bits = (
                    pair & tirx.const(_UPPER_HALF, PAIR_DTYPE)
                    if odd
                    else pair << tirx.const(16, PAIR_DTYPE)
                )
                weight = tirx.reinterpret("float32", bits)
                number = load(numbers, [(start + k) * 2 + odd])
                index = const(row * width) + lane
                store(acc, load(acc, [index]) + number * weight, index)
