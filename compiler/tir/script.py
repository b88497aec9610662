"""Loops over threads in TVM's script builder, for programs that are written with it."""

from collections.abc import Iterator

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from compiler.tir.exprs import Expr, const
from compiler.tir.loops import PARALLEL_IF, TASKS

PARALLEL_WORK = 1 << 15
"""Operations below which starting other threads costs more than it saves."""


def spread(extent: Expr, work: Expr) -> Iterator[Expr]:
    """for i in range(extent), whose iterations are independent: in parallel if `work`, operations
    of all of them, is worth it.
    """
    condition = tirx.GT(work, const(PARALLEL_WORK))
    tasks = T.serial(extent, annotations={TASKS: True})
    with T.attr(const(0), PARALLEL_IF, condition), tasks as i:
        yield i
