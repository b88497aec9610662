"""A bfloat16 that is the same in each lane is stored by vector loops."""

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm.script import tirx as T

from tests.compiler.passes.tvm_fixes.test_legalize_bfloat16 import numbers, tensor
from tests.compiler.quick_code import register_lowering

BFLOAT = ml_dtypes.bfloat16
NUMBERS = (0.5, float("-inf"), float("nan"), -0.0)


@T.prim_func(private=True, s_tir=True)
def fill(
    x: T.Buffer((T.int64(4),), "float32"),
    y: T.Buffer((T.int64(4), T.int64(32)), "bfloat16"),
):
    for i in range(T.int64(4)):
        for j in T.vectorized(T.int64(32)):
            y[i, j] = T.Cast("bfloat16", x[i])


@T.prim_func(private=True, s_tir=True)
def fill_with_constant(
    x: T.Buffer((T.int64(4),), "float32"),
    y: T.Buffer((T.int64(4), T.int64(32)), "bfloat16"),
):
    for i in range(T.int64(4)):
        for j in T.vectorized(T.int64(32)):
            y[i, j] = T.bfloat16("-inf")


@pytest.mark.parametrize("program", [fill, fill_with_constant], ids=["number", "constant"])
def test_what_is_the_same_in_each_lane(program: tvm.tirx.PrimFunc) -> None:
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    module = tvm.IRModule({"fill": program.with_attr("global_symbol", "fill")})
    kernel = tvm.tirx.build(module, target, pipeline=register_lowering())["fill"]
    x = np.array(NUMBERS, np.float32)
    y = tensor(np.ones((4, 32), BFLOAT))
    kernel(tensor(x), y)
    wanted = x if program is fill else np.full(4, -np.inf)
    np.testing.assert_array_equal(
        numbers(y).astype("f4"), np.repeat(wanted.astype(BFLOAT).astype("f4")[:, None], 32, 1)
    )
