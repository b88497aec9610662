"""Numbers of positions, and the work from which on threads share it."""

import itertools
import math

import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx

from compiler.passes.cpu.shared import plan as shared_plan
from compiler.passes.cpu.shared.sharing import (
    MOST_OPERATIONS,
    is_parallel_profitable,
    operations,
    position_of,
)
from compiler.tir.exprs import as_int, const, substitute
from compiler.tir.stages import Axis, Stage, read_program


@given(extents=st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_position_has_one_number(extents: list[int]) -> None:
    axes = [Axis(tirx.Var(f"a{i}", "int64"), const(e), False) for i, e in enumerate(extents)]
    index = tirx.Var("index", "int64")
    table = position_of(axes, index)
    analyzer = tvm.sym.Analyzer()

    def position(number: int) -> tuple[int | None, ...]:
        numbers = {index: const(number)}
        return tuple(
            as_int(analyzer.simplify(substitute(table[axis.var], numbers))) for axis in axes
        )

    positions = [position(number) for number in range(math.prod(extents))]
    assert positions == list(itertools.product(*map(range, extents)))


def stage(rows: int | str, columns: int, function: str = "copy") -> Stage:
    extent = tirx.Var(rows, "int64") if isinstance(rows, str) else rows
    x = te.placeholder((extent, columns), "float32", name="x")
    value = {"copy": lambda v: v, "exp": te.exp}[function]
    result = te.compute((extent, columns), lambda i, j: value(x[i, j]))
    program = read_program(te.create_prim_func([x, result], "int64"))
    assert program
    return program.stages[0]


def test_small_work_stays_in_one_thread() -> None:
    each = operations(stage(1, 1).value)
    enough = shared_plan.PARALLEL_WORK // each
    assert as_int(is_parallel_profitable(stage(1, enough - 1))) == 0
    assert as_int(is_parallel_profitable(stage(1, enough + 1))) == 1
    assert as_int(is_parallel_profitable(stage(1, enough - 1), stage(1, enough - 1))) == 1


def test_an_exponential_is_more_work_than_a_copy() -> None:
    copied, raised = (operations(stage(1, 1, kind).value) for kind in ("copy", "exp"))
    assert copied < raised <= MOST_OPERATIONS


def test_a_dim_leaves_it_to_run_time() -> None:
    assert as_int(is_parallel_profitable(stage("n", 64))) is None
