"""Loops over threads that become plain loops."""

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from compiler import targets
from compiler.codegen.side_by_side import compile_each
from compiler.passes.lower.loops.serialize_loops import SerializeLoops
from compiler.tir.building import parallel, statements, store
from compiler.tir.exprs import const
from compiler.tir.loops import PARALLEL_IF

COLUMNS = 3


def double(profitable: Any) -> tvm.IRModule:
    """A program over rows, which threads share where that is `profitable`."""
    rows = tirx.Var("rows", "int64")
    x, y = (tirx.decl_buffer([rows, const(COLUMNS)], "float32", name) for name in "xy")
    with statements() as body, parallel(rows, profitable(rows)) as row:
        for column in range(COLUMNS):
            store(y, x[row, column] * tirx.const(2, "float32"), row, column)
    block = s_tir.SBlock([], [], [], "root", body.stmt)
    root = s_tir.SBlockRealize([], tirx.IntImm("bool", 1), block)
    func = tirx.PrimFunc([x, y], root).with_attrs(
        {"global_symbol": "rows", "tirx.noalias": True, "s_tir": True}
    )
    return tvm.IRModule({"rows": func})


@pytest.mark.parametrize("profitable", [lambda rows: True, lambda rows: rows >= const(5)])
def test_one_loop_over_every_row_is_left(profitable: Any) -> None:
    module = double(profitable)
    assert PARALLEL_IF in str(module)
    serial = SerializeLoops().apply(module)
    assert PARALLEL_IF not in str(serial)
    assert str(serial).count("* T.float32(2.0)") == COLUMNS
    (code,) = compile_each(serial, targets.resolve("native"))
    for rows in (1, 4, 5, 300):
        x = np.random.default_rng(rows).standard_normal((rows, COLUMNS)).astype("float32")
        y = np.full_like(x, np.nan)
        code["rows"](tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))
        np.testing.assert_array_equal(y, 2 * x)
