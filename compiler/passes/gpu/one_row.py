"""A schedule for one row, or a few, by a matrix of packed words."""

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight import ScheduleRule, normalize_prim_func, try_inline_contiguous_spatial

UNPACKING = "dequantize"
"""The stage that unpacks a matrix's words, by a name that TVM's rule for few rows knows."""
_COLUMNS, _SLICES, _RUN, _UNROLLED = 8, 16, 32, 8


class OneRow(ScheduleRule):  # type: ignore[misc]
    """Schedules `[rows, depth]` by unpacked `[columns, depth]`, and what is elementwise behind it.

    A block computes 8 columns of one row. Its threads share the depth out in runs of 32 numbers, so
    that neighbours read neighbouring words. Each adds its runs up in a register; the parts of a
    column meet in shared memory, behind one barrier. TVM's rule for few rows has a tree of barriers
    for each sum, which costs more than the sum itself where the depth is some hundreds.
    """

    def apply(self, func: tirx.PrimFunc, target: tvm.target.Target, _: bool) -> Any:
        """The schedule, None for any other tensor program."""
        schedule = s_tir.Schedule(func)
        stages = normalize_prim_func(schedule)
        if stages is None or not stages[0].name.startswith(UNPACKING) or len(stages) < 2:
            return None
        matmul = stages[1]
        if not matmul.is_reduction() or any(stage.is_reduction() for stage in stages[2:]):
            return None
        schedule.compute_inline(stages[0].block_rv)
        behind = try_inline_contiguous_spatial(schedule, stages[1:])[1:]
        if len(behind) > 1 or not all(stage.is_injective() for stage in behind):
            return None
        _, *fixed = schedule.get_loops(matmul.block_rv)
        extents = [schedule.get(loop).extent for loop in fixed]
        if len(fixed) != 2 or not all(isinstance(extent, tirx.IntImm) for extent in extents):
            return None
        width, depth = map(int, extents)
        if width % _COLUMNS or depth % _RUN:
            return None
        slices = max(count for count in range(1, _SLICES + 1) if depth // _RUN % count == 0)
        _bind(schedule, matmul.block_rv, [each.block_rv for each in behind], slices)
        return schedule


def _bind(schedule: Any, matmul: Any, behind: list[Any], slices: int) -> None:
    """Binds rows, columns and slices of the depth, and the stages `behind` the product."""
    _, _, depth = schedule.get_loops(matmul)
    _, piece, _ = schedule.split(depth, [None, slices, _RUN])
    parts = schedule.rfactor(piece, 0)
    schedule.set_scope(parts, 0, "shared")
    rows, columns, _ = schedule.get_loops(matmul)
    block, column = schedule.split(columns, [None, _COLUMNS])
    schedule.reorder(rows, block, column)
    schedule.bind(rows, "blockIdx.y")
    schedule.bind(block, "blockIdx.x")
    for stage in behind:
        schedule.reverse_compute_at(stage, column, preserve_unit_loops=True)
        schedule.set_scope(matmul, 0, "local")
    # One thread of a column adds its parts up.
    _, one = schedule.split(schedule.add_unit_loop(column), [1, slices])
    schedule.bind(one, "threadIdx.x")
    schedule.bind(column, "threadIdx.y")
    _share(schedule, parts, block)


def _share(schedule: Any, parts: Any, block: Any) -> None:
    """Gives each thread a part, which it adds up in a register."""
    schedule.compute_at(parts, block, preserve_unit_loops=True)
    *_, piece, _, column, again, run = schedule.get_loops(parts)
    schedule.reorder(column, piece, again, run)
    schedule.bind(column, "threadIdx.y")
    schedule.bind(piece, "threadIdx.x")
    stored = schedule.cache_write(parts, 0, "local")
    schedule.reverse_compute_at(stored, piece, preserve_unit_loops=True)
    _, numbers = schedule.split(run, [None, _UNROLLED])
    schedule.unroll(numbers)
    schedule.decompose_reduction(parts, again)
