"""Prefetches between the steps of an inner loop, for weights that come from beyond L2."""

from collections.abc import Callable
from typing import Any

from tvm import tirx

from compiler.targets.vector_unit import LINE, VectorUnit
from compiler.tir.building import prefetch
from compiler.tir.exprs import Expr, const


def prefetch_between(
    unit: VectorUnit, weights: Any, panel: Expr, width: int, depth: Expr, tile: Expr, tiles: int
) -> Callable[[Expr], None]:
    """What to do before each group of steps of tile number `tile`: prefetch its share of a panel,
    so that `tiles` tiles prefetch all of it.

    panel: where in `weights` the panel begins, `depth` rows of `width` columns.

    In one burst ahead of a tile, prefetches take every buffer in which misses of L1 wait: 5 % of
    the time of a matmul on Sapphire Rapids. Their number is fixed, as LLVM would unroll a loop of
    them and advance a pointer for each.
    """
    lines = -(-4 * width * unit.together // LINE // tiles)
    groups = tirx.truncdiv(depth, const(unit.together))

    def between(group: Expr) -> None:
        first = panel + (tile * groups + group) * (lines * LINE // 4)
        for line in range(lines):
            prefetch(weights, first + line * (LINE // 4))

    return between
