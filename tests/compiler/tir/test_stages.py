"""Programs as stages: what is read, what is moved into its readers."""

from typing import Any

import pytest
import tvm
from tvm import te, tirx

from compiler.tir.exprs import loads
from compiler.tir.stages import Program, inline_stages, read_copy, read_program


def create(*tensors: Any) -> tirx.PrimFunc:
    return te.create_prim_func(list(tensors), "int64")


def read(*tensors: Any) -> Program:
    program = read_program(create(*tensors))
    assert program is not None
    return program


X = te.placeholder((4, 6), "float32", name="x")


def test_stages_come_in_order_with_their_axes() -> None:
    k = te.reduce_axis((0, 6), "k")
    total = te.compute((4,), lambda i: te.sum(X[i, k], axis=[k]), "total")
    program = read(X, te.compute((4, 6), lambda i, j: X[i, j] / total[i], "y"))
    first, second = program.stages
    assert [axis.reduce for axis in first.axes] == [False, True]
    assert first.init is not None
    assert second.init is None
    assert [buffer.name for buffer in program.locals] == ["total"]
    assert [buffer.name for buffer in program.outputs] == ["y"]


def test_a_scheduled_function_is_no_program() -> None:
    schedule = tvm.s_tir.Schedule(create(X, te.compute((4, 6), lambda i, j: X[i, j] + 1.0)))
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.split(schedule.get_loops(block)[0], [2, None])
    assert read_program(schedule.mod["main"]) is None


@pytest.mark.parametrize(
    ("value", "inlined"),
    [
        (lambda t: lambda i, j: t[i, j] * 2.0, True),
        (lambda t: lambda i, j: t[i, j] + t[i, 5 - j], True),
        (lambda t: lambda i, j: t[3 - i, j], True),
    ],
    ids=["once", "twice, cheap", "elsewhere"],
)
def test_cheap_stages_move_into_their_readers(value: Any, inlined: bool) -> None:
    cheap = te.compute((4, 6), lambda i, j: X[i, j] + 1.0, "cheap")
    program = inline_stages(read(X, te.compute((4, 6), value(cheap), "y")))
    assert (len(program.stages) == 1) is inlined
    assert program.locals == ()
    assert {one.source.name for one in loads(program.stages[0].value)} == {"x"}


def test_a_dear_stage_that_is_read_twice_stays() -> None:
    dear = te.compute((4, 6), lambda i, j: te.exp(te.erf(te.exp(X[i, j]))), "dear")
    program = inline_stages(
        read(X, te.compute((4, 6), lambda i, j: dear[i, j] + dear[i, 5 - j], "y"))
    )
    assert [stage.buffer.name for stage in program.stages] == ["dear", "y"]


def test_a_result_is_never_moved_away() -> None:
    first = te.compute((4, 6), lambda i, j: X[i, j] + 1.0, "first")
    second = te.compute((4, 6), lambda i, j: first[i, j] * 2.0, "second")
    program = inline_stages(read(X, first, second))
    assert [stage.buffer.name for stage in program.stages] == ["first", "second"]


def test_copies() -> None:
    turned = read_copy(create(X, te.compute((6, 4), lambda i, j: X[j, i])))
    assert turned is not None
    variables, indices = turned
    assert indices[0].same_as(variables[1])
    assert read_copy(create(X, te.compute((4, 6), lambda i, j: X[i, j] + 1.0))) is None
    other = te.placeholder((4, 6), "float32", name="other")
    assert read_copy(create(X, other, te.compute((4, 6), lambda i, j: X[i, j]))) is None
