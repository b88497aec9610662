"""Moves the channels of a tensor program's buffers to the end, for images that are kept so."""

from collections.abc import Sequence
from typing import Any

from tvm import s_tir, tirx


def relabel(function: tirx.PrimFunc, inputs: tuple[int, ...], rank: int) -> tirx.PrimFunc | None:
    """Moves the channels of the parameters `inputs`, and of the result, to the end; None where TVM
    cannot transform the program's blocks.
    """

    def moved(n: Any, c: Any, *rest: Any) -> tuple[Any, ...]:
        return n, *rest[: rank - 2], c, *rest[rank - 2 :]

    *params, result = function.params
    schedule = s_tir.Schedule(function)
    root = schedule.get_sblock("root")
    blocks = schedule.get_child_blocks(root)
    reads = [_access(schedule, blocks, "reads", params[position]) for position in inputs]
    write = _access(schedule, blocks, "writes", result)
    if write is None or any(read is None for read in reads):
        return None
    try:
        for block, index in filter(None, reads):
            schedule.transform_layout(
                block, ("read", index), moved, assume_injective_transform=True
            )
        schedule.transform_layout(
            write[0], ("write", write[1]), moved, assume_injective_transform=True
        )
        axes = len(schedule.get(write[0]).iter_vars)
        schedule.transform_block_layout(
            write[0], tirx.IndexMap.from_func(moved, ndim=axes, index_dtype="int64")
        )
    except s_tir.ScheduleError:
        return None
    return schedule.mod["main"].with_attrs(function.attrs)


def _access(
    schedule: s_tir.Schedule, blocks: Sequence[Any], kind: str, parameter: Any
) -> tuple[Any, int] | None:
    """The first block that reads or writes the parameter, and the position of the access in it."""
    for block in blocks:
        for index, region in enumerate(getattr(schedule.get(block), kind)):
            if region.source.same_as(parameter):
                return block, index
    return None
