"""A loop that runs over threads where that is profitable is compiled once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from compiler.codegen.side_by_side import compile_each
from compiler.passes.lower.functions.make_c_functions import Plain
from compiler.passes.lower.functions.outline_loops import OutlineLoops
from compiler.passes.manager import Lowering
from compiler.tir.building import alloc, parallel, serial, statements, store
from compiler.tir.exprs import Expr, const
from compiler.tir.loops import PARALLEL_IF
from tests.compiler.conftest import HOST

FEWEST = 100
COLUMNS = 16


def kernel(emit_row: Callable[[Any, Any, Expr], None]) -> tvm.IRModule:
    """A program over rows of 16 numbers, which threads share from 100 rows on."""
    rows = tirx.Var("rows", "int64")
    x, y = (tirx.decl_buffer([rows, const(COLUMNS)], "float32", name) for name in "xy")
    with statements() as body, parallel(rows, rows >= const(FEWEST)) as row:
        emit_row(x, y, row)
    block = s_tir.SBlock([], [], [], "root", body.stmt)
    root = s_tir.SBlockRealize([], tirx.IntImm("bool", 1), block)
    func = tirx.PrimFunc([x, y], root).with_attrs(
        {"global_symbol": "rows", "tirx.noalias": True, "s_tir": True}
    )
    return tvm.IRModule({"rows": func})


def running_totals(x: Any, y: Any, row: Expr) -> None:
    """With memory of a task's own, of both kinds."""
    scratch = alloc([COLUMNS], "float32", "scratch", "global")
    total = alloc([1], "float32", "total")
    store(total, 0, 0)
    with serial(COLUMNS) as column:
        store(total, total[0] + x[row, column], 0)
        store(scratch, total[0], column)
    with serial(COLUMNS) as column:
        store(y, scratch[column], row, column)


@pytest.mark.parametrize("rows", [1, FEWEST - 1, FEWEST, 1009])
def test_both_ways_compute_every_row(rows: int) -> None:
    (compiled,) = compile_each(kernel(running_totals), HOST)
    x = np.random.default_rng(rows).standard_normal((rows, COLUMNS)).astype("float32")
    y = np.full_like(x, np.nan)
    compiled["rows"](tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))
    np.testing.assert_allclose(y, np.cumsum(x, axis=1, dtype="float32"), atol=1e-5)


def test_the_body_is_there_once() -> None:
    lowered = Lowering(HOST).lower(kernel(running_totals))
    assert sorted(gvar.name_hint for gvar in lowered.functions) == ["rows", "rows.part0"]
    copies = {
        gvar.name_hint: str(func).count("scratch") for gvar, func in lowered.functions.items()
    }
    assert copies["rows"] == 0
    assert copies["rows.part0"] > 0


def test_a_part_that_fails_ends_the_kernel() -> None:
    calls = [
        node
        for node in statements_of(Lowering(HOST).lower(kernel(running_totals))["rows"])
        if isinstance(node, tirx.IfThenElse) and "part0" in str(node.condition)
    ]
    assert len(calls) == 2
    assert all("tvm_throw_last_error" in str(call.then_case) for call in calls)


def statements_of(func: tirx.PrimFunc) -> list[Any]:
    branches: list[Any] = []
    tvm_ffi.structural_walk(func.body, (tirx.IfThenElse, branches.append), order="pre")
    return branches


def test_a_loop_inside_of_one_that_vanished_is_no_loop_over_tasks() -> None:
    """TVM takes away a loop of one iteration: what is left may depend on the step before."""
    x = tirx.decl_buffer([9], "float32", "x")
    step = tirx.Var("step", "int64")
    total = tirx.BufferStore(x, x[step] + x[step + const(1)], [step + const(1)])
    inner = tirx.For(step, const(0), const(8), tirx.ForKind.SERIAL, total)
    marked = tirx.AttrStmt(const(0), PARALLEL_IF, tirx.IntImm("bool", 1), inner)
    func = tirx.PrimFunc([x], marked).with_attr("global_symbol", "sums")
    outlined = OutlineLoops().apply(tvm.IRModule({"sums": func}))
    assert [gvar.name_hint for gvar in outlined.functions] == ["sums"]
    assert tvm_ffi.structural_equal(outlined["sums"].body, inner)
    plain = Plain()
    assert plain.kernel(func).tasks == ()
