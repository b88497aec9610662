"""Faults planted in kernels: an intrinsic is 1 % too large, in all kernels or in fused ones alone.

As a program, the search of `compiler.bisection.task` with the fault that `RELAXD_PLANTED` names; it
kills itself after so many records as `RELAXD_RECORDS` says.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from tvm import tirx
from tvm.ir import Call

from compiler.bisection import task
from compiler.isolation.step import Record, serve
from compiler.passes.cpu import schedule
from compiler.tir.exprs import nodes
from compiler.tir.stages import Program, Stage, read_program
from tests.support.geometries import NATIVE, builds_for

FAULTS = {
    "sigmoid": ("tirx.sigmoid", 1),
    "tanh": ("tirx.tanh", 1),
    "fused tanh": ("tirx.tanh", 2),
    "none": ("", 1),
}
"""By name: the intrinsic, and how many stages a kernel has at least for it to be wrong."""


@contextmanager
def plant(fault: str) -> Iterator[None]:
    """The compiler of this process has the fault. LLVM has no part in it, and optimises nothing."""
    intrinsic, least = FAULTS[fault]
    read = read_program

    def wrong(function: Any) -> Program | None:
        program = read(function)
        if program is None or len(program.stages) < least:
            return program
        return replace(
            program, stages=tuple(_enlarged(stage, intrinsic) for stage in program.stages)
        )

    with mock.patch.object(schedule, "read_program", wrong), builds_for(NATIVE, llvm=0):
        yield


def _enlarged(stage: Stage, intrinsic: str) -> Stage:
    calls = (node for node in nodes(stage.value) if isinstance(node, Call))
    if any(call.op.name == intrinsic for call in calls):
        return stage.map_value(stage.value * tirx.const(1.01, "float32"))
    return stage


def _search(spec: Record, record: Callable[[Record], None]) -> None:
    left = int(os.environ.get("RELAXD_RECORDS", "1000"))

    def counted(document: Record) -> None:
        nonlocal left
        record(document)
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    with plant(os.environ["RELAXD_PLANTED"]):
        task.search(spec, counted)


if __name__ == "__main__":
    serve(_search)
