"""Rewriting scalar expressions keeps the dtype of every constant, and what was put in."""

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import (
    calls_any,
    const,
    load,
    nodes,
    replace_loads,
    substitute,
)


def test_constants_of_equal_value_and_different_dtype_stay_apart() -> None:
    i, j = tirx.Var("i", "int64"), tirx.Var("j", "int64")
    value = tirx.Select(
        tirx.EQ(i, tirx.IntImm("int64", 0)), tirx.IntImm("int32", 1), tirx.IntImm("int32", 0)
    )
    wanted = tirx.Select(
        tirx.EQ(j, tirx.IntImm("int64", 0)), tirx.IntImm("int32", 1), tirx.IntImm("int32", 0)
    )
    tvm.ir.assert_structural_equal(substitute(value, {i: j}), wanted)
    constants = [node for node in nodes(value) if isinstance(node, tirx.IntImm)]
    assert sorted((node.value, str(node.ty.dtype)) for node in constants) == [
        (0, "int32"),
        (0, "int64"),
        (1, "int32"),
    ]


def test_what_replaces_a_load_stays_as_it_is() -> None:
    i, j = tirx.Var("i", "int64"), tirx.Var("j", "int64")
    x, y = (tirx.decl_buffer([const(8)], "int64", name=name) for name in "xy")
    value = load(x, [i]) + load(y, [i]) * i
    tvm.ir.assert_structural_equal(replace_loads(value, x, i, {i: j}), i + load(y, [j]) * j)


def test_a_binding_whose_value_changes_gets_its_own_variable() -> None:
    """TVM's code generator refuses one variable of two values, in whatever loops they stand."""
    i, j, y = (tirx.Var(name, "int64") for name in "ijy")
    value = prim.Let(y, i + const(1), y * y)
    moved = substitute(value, {i: j})
    tvm.ir.assert_structural_equal(moved, prim.Let(y, j + const(1), y * y), map_free_vars=True)
    assert not moved.var.same_as(y)
    assert substitute(value, {j: i}).var.same_as(y)


def test_arithmetic_of_integers_folds_constants_and_that_of_floats_keeps_nan() -> None:
    i, j = tirx.Var("i", "int64"), tirx.Var("j", "int64")
    index = substitute(i * const(12) + j * const(3), {i: const(0)})
    tvm.ir.assert_structural_equal(index, j * const(3), map_free_vars=True)
    x, y = tirx.Var("x", "float32"), tirx.Var("y", "float32")
    zero = tirx.const(0.0, "float32")
    tvm.ir.assert_structural_equal(substitute(x * y, {y: zero}), prim.Mul(x, zero))


def test_calls_are_found_by_name() -> None:
    x = load(tirx.decl_buffer([const(8)], "float32", name="x"), [const(0)])
    fused = tirx.call_intrin("float32", "tirx.fma", x, x, x)
    assert calls_any(fused * tirx.exp(fused), ("tirx.exp", "tirx.tanh"))
    assert not calls_any(fused, ("tirx.exp",))
