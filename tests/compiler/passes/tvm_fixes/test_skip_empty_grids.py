import tvm
from tvm.script import tirx as T

from compiler.passes.gpu.bound import CheckBound
from compiler.passes.tvm_fixes.skip_empty_grids import SkipEmptyGrids


@T.prim_func(private=True, s_tir=True)
def two_grids(x_ptr: T.handle, y_ptr: T.handle):
    m, n = T.int64(), T.int64()
    x = T.match_buffer(x_ptr, (m, n), "float32")
    y = T.match_buffer(y_ptr, (n,), "float32")
    for row in T.thread_binding(m, thread="blockIdx.y"):
        for block in T.thread_binding((n + 31) // 32, thread="blockIdx.x"):
            for thread in T.thread_binding(32, thread="threadIdx.x"):
                x[row, block * 32 + thread] = T.float32(0)
    for block in T.thread_binding(n, thread="blockIdx.x"):
        for thread in T.thread_binding(1, thread="threadIdx.x"):
            y[block + thread] = T.float32(0)


@T.prim_func(private=True, s_tir=True)
def two_grids_that_may_be_empty(x_ptr: T.handle, y_ptr: T.handle):
    m, n = T.int64(), T.int64()
    x = T.match_buffer(x_ptr, (m, n), "float32")
    y = T.match_buffer(y_ptr, (n,), "float32")
    if T.tvm_thread_invariant(m > T.int64(0) and (n + 31) // 32 > T.int64(0)):
        for row in T.thread_binding(m, thread="blockIdx.y"):
            for block in T.thread_binding((n + 31) // 32, thread="blockIdx.x"):
                for thread in T.thread_binding(32, thread="threadIdx.x"):
                    x[row, block * 32 + thread] = T.float32(0)
    if T.tvm_thread_invariant(n > T.int64(0)):
        for block in T.thread_binding(n, thread="blockIdx.x"):
            for thread in T.thread_binding(1, thread="threadIdx.x"):
                y[block + thread] = T.float32(0)


@T.prim_func(private=True, s_tir=True)
def fill_blocks(x: T.Buffer((64,), "float32")):
    for block in T.thread_binding(2, thread="blockIdx.x"):
        for thread in T.thread_binding(32, thread="threadIdx.x"):
            x[block * 32 + thread] = T.float32(0)


def test_grids_of_symbolic_extents_run_where_none_is_zero():
    after = SkipEmptyGrids().apply(tvm.IRModule({"kernel": two_grids}))
    wanted = tvm.IRModule({"kernel": two_grids_that_may_be_empty})
    tvm.ir.assert_structural_equal(after, wanted)
    assert CheckBound().apply(after).same_as(after)


def test_fixed_grids_are_left_alone():
    (after,) = SkipEmptyGrids().apply(tvm.IRModule({"kernel": fill_blocks})).functions.values()
    assert after.same_as(fill_blocks)
