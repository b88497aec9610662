"""Tensor programs as functions of pointers and numbers."""

import re

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from compiler import targets
from compiler.codegen.standalone.kernels import compile_kernels
from compiler.errors import CodegenError
from compiler.tir.exprs import substitute


def kernels(function, threads=True):
    return compile_kernels(
        tvm.IRModule({"double": function}), targets.resolve("x86-64-v3"), "relaxd_m", threads
    )


@T.prim_func(private=True, s_tir=True)
def shared(a: T.handle, b: T.handle):
    n = T.int64()
    x = T.match_buffer(a, (n,), "float32")
    y = T.match_buffer(b, (n,), "float32")
    if n > T.int64(1000):
        for i in T.parallel(n):
            y[i] = x[i] * T.float32(2)
    else:
        for i in range(n):
            y[i] = x[i] * T.float32(2)


@T.prim_func(private=True, s_tir=True)
def scratched(a: T.handle, b: T.handle):
    n = T.int64()
    x = T.match_buffer(a, (n,), "float32")
    y = T.match_buffer(b, (n,), "float32")
    kept = T.alloc_buffer((n,), "float32")
    for i in range(n):
        kept[i] = x[i] * T.float32(2)
    for i in range(n):
        y[i] = kept[n - T.int64(1) - i]


def test_a_parallel_loop_is_a_function_that_the_host_starts():
    made = kernels(shared)
    kernel = made.table["double"]
    assert kernel.symbol == "relaxd_m_k_double"
    assert kernel.needs_context
    assert not kernel.needs_scratch
    assert kernel.dims == ((0, 0),)
    (task,) = kernel.tasks
    text = made.code.inspect_source("ll")
    assert f"call i32 @{task.launch}" in text
    assert re.search(rf"define\b.* i32 @{task.symbol}\(i32", text)


def test_without_threads_the_serial_half_is_left():
    kernel = kernels(shared, threads=False).table["double"]
    assert (kernel.tasks, kernel.needs_context) == ((), False)


def test_working_memory_is_counted_over_the_extents():
    kernel = kernels(scratched).table["double"]
    assert kernel.needs_scratch
    (n,) = kernel.extents
    for value, size in ((1, 64), (16, 64), (17, 128), (1000, 4032)):
        bound = substitute(kernel.scratch, {n: tirx.IntImm("int64", value)})
        assert int(tvm.sym.Analyzer().simplify(bound).value) == size


def test_working_memory_that_depends_on_values_is_refused():
    @T.prim_func(private=True, s_tir=True)
    def by_value(x: T.Buffer((T.int64(1),), "int64"), y: T.Buffer((T.int64(1),), "int64")):
        count: T.let[T.int64] = x[T.int64(0)]
        kept = T.alloc_buffer((count,), "int64")
        for i in range(count):
            kept[i] = i
        y[T.int64(0)] = kept[T.int64(0)]

    with pytest.raises(CodegenError) as caught:
        kernels(by_value)
    assert caught.value.code == "codegen.scratch"
