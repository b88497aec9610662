"""Prefetches between the steps of an inner loop, for weights that come from beyond L2."""

from collections.abc import Callable
from typing import Any

from tvm import tirx

from compiler.passes.cpu.shared import plan
from compiler.targets.vector_unit import LINE, VectorUnit
from compiler.tir.building import prefetch
from compiler.tir.exprs import Expr, bits_of, const, dtype_of


def prefetch_ahead(weights: Any, first: Expr, width: int, unroll: int) -> Callable[[Expr], None]:
    """A callback for `steps` that prefetches, before each group of `unroll` steps, what a later
    group reads: for few rows, which read weights once and wait for memory.

    first: where in `weights` the steps begin, each a row of `width` elements. The hardware's own
    prefetches begin anew at each page of 4 KiB.
    """
    size = _size(weights)

    def between(group: Expr) -> None:
        begin = first + group * (width * unroll) + plan.AHEAD // size
        for line in range(0, width * unroll, LINE // size):
            prefetch(weights, begin + line, level=1)

    return between


def prefetch_between(
    unit: VectorUnit, weights: Any, panel: Expr, width: int, depth: Expr, tile: Expr, tiles: int
) -> Callable[[Expr], None]:
    """A callback for `steps` that prefetches a share of a panel before each group of steps of tile
    number `tile`, so that `tiles` tiles prefetch all of it.

    panel: where in `weights` the panel begins, `depth` rows of `width` elements.

    In one burst ahead of a tile, prefetches take every buffer in which misses of L1 wait: 5 % of
    the time of a matmul on Sapphire Rapids. Their number is fixed, as LLVM would unroll a loop of
    them and advance a pointer for each.
    """
    size = _size(weights)
    lines = -(-size * width * unit.unroll // LINE // tiles)
    groups = tirx.truncdiv(depth, const(unit.unroll))

    def between(group: Expr) -> None:
        first = panel + (tile * groups + group) * (lines * LINE // size)
        for line in range(lines):
            prefetch(weights, first + line * (LINE // size))

    return between


def _size(buffer: Any) -> int:
    """Bytes of an element."""
    return bits_of(dtype_of(buffer)) // 8
