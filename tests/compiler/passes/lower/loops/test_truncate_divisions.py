"""Divisions that round down give the same numbers once they round to zero."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from compiler.codegen.side_by_side import compile_each
from compiler.passes.lower.loops.truncate_divisions import TruncateDivisions
from compiler.tir.building import let_opaque, serial, statements, store, vectorize
from compiler.tir.exprs import Expr, const
from tests.compiler.conftest import HOST

COUNT = 96
DIVISORS = (1, 2, 3, 8, 10, -1, -3, -8)
DTYPES = ("int8", "int16", "int32", "int64")
KINDS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)


def kernel(dtype: str, lanes: int) -> tvm.IRModule:
    """Quotients and rests of two inputs, of each place, and of each place less 40."""
    rows = 2 * (3 * len(DIVISORS) + 2)
    x, d = (tirx.decl_buffer([const(COUNT)], dtype, name) for name in "xd")
    y = tirx.decl_buffer([const(rows), const(COUNT)], dtype, "y")

    def emit(i: Expr) -> None:
        position = i if dtype == "int64" else tirx.Cast(dtype, i)
        divisors = [tirx.const(divisor, dtype) for divisor in DIVISORS]
        dividends = (x[i], position, position - tirx.const(40, dtype))
        pairs = [*product(dividends, divisors), (x[i], d[i]), (position, d[i])]
        for row, (pair, operation) in enumerate(product(pairs, (tirx.FloorDiv, tirx.FloorMod))):
            store(y, operation(*pair), row, i)

    with statements() as body:
        if lanes == 1:
            with serial(COUNT) as i:
                emit(i)
        else:
            with serial(COUNT // lanes) as strip, vectorize(lanes) as lane:
                emit(strip * lanes + lane)
    return program([x, d, y], body.stmt)


def program(buffers: list[Any], stmt: Any) -> tvm.IRModule:
    block = s_tir.SBlock([], [], [], "root", stmt)
    root = s_tir.SBlockRealize([], tirx.IntImm("bool", 1), block)
    func = tirx.PrimFunc(buffers, root).with_attrs(
        {"global_symbol": "divide", "tirx.noalias": True, "s_tir": True}
    )
    return tvm.IRModule({"divide": func})


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_quotients_and_rests_are_those_of_numpy(dtype: str, lanes: int) -> None:
    (compiled,) = compile_each(kernel(dtype, lanes), HOST)
    random = np.random.default_rng(0)
    x = random.integers(-100, 100, COUNT).astype(dtype)
    d = (random.integers(1, 12, COUNT) * random.choice([-1, 1], COUNT)).astype(dtype)
    position = np.arange(COUNT, dtype=dtype)
    y = np.full((2 * (3 * len(DIVISORS) + 2), COUNT), 77, dtype)
    compiled["divide"](*map(tvm_ffi.from_dlpack, (x, d, y)))
    pairs = [*product((x, position, position - 40), DIVISORS), (x, d), (position, d)]
    operations = (np.floor_divide, np.remainder)
    expected = [operation(*pair) for pair, operation in product(pairs, operations)]
    np.testing.assert_array_equal(y, np.stack(expected))


def count(stmt: Any, *kinds: Any) -> int:
    seen: list[Any] = []
    tvm_ffi.structural_walk(stmt, (kinds, seen.append), order="pre")
    return len(seen)


def test_one_division_is_left_where_nothing_is_negative() -> None:
    rows = tirx.Var("rows", "int64")
    y = tirx.decl_buffer([rows], "int64", "y")
    with statements() as body, serial(rows, "i") as i:
        # By way of memory too, as kernels keep quotients.
        store(y, tirx.floordiv(i, let_opaque("step", tirx.floormod(i, const(7)) + 1)), i)
    done = TruncateDivisions().apply(program([y], body.stmt))["divide"].body
    assert count(done, tirx.FloorDiv, tirx.FloorMod) == 0
    assert count(done, *KINDS) == 2
    assert count(done, tirx.RShift, tirx.Select) == 0


def test_whether_a_rest_is_zero_takes_one_division() -> None:
    x = tirx.decl_buffer([const(5)], "int64", "x")
    with statements() as body, serial(5) as i:
        store(x, tirx.Select(tirx.EQ(tirx.floormod(x[i], const(3)), const(0)), x[i], const(1)), i)
    done = TruncateDivisions().apply(program([x], body.stmt))["divide"].body
    assert count(done, tirx.Mod) == 1
    assert count(done, tirx.RShift, tirx.FloorMod) == 0
