"""Tensor programs as functions of pointers and numbers."""

import dataclasses
import json
import operator
import re

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

from compiler import targets
from compiler.codegen.standalone.kernels import assembly, compile_kernels
from compiler.errors import CodegenError
from compiler.passes.lower.functions.c_interface import Kernel, fill_size
from compiler.passes.lower.functions.make_c_functions import Plain
from compiler.tir.building import (
    alloc,
    parallel,
    statements,
    store,
)
from compiler.tir.exprs import const

TARGET = targets.resolve("x86-64-v3")


def kernels(function, threads=True):
    return compile_kernels(tvm.IRModule({"double": function}), TARGET, "relaxd_m", threads)


@T.prim_func(private=True, s_tir=True)
def share_rows(a: T.handle, b: T.handle):
    n = T.int64()
    x = T.match_buffer(a, (n,), "float32")
    y = T.match_buffer(b, (n,), "float32")
    for i in T.parallel(n):
        y[i] = x[i] * T.float32(2)


@T.prim_func(private=True, s_tir=True)
def reverse_rows(a: T.handle, b: T.handle):
    n = T.int64()
    x = T.match_buffer(a, (n,), "float32")
    y = T.match_buffer(b, (n,), "float32")
    cells = T.alloc_buffer((n,), "float32")
    for i in range(n):
        cells[i] = x[i] * T.float32(2)
    for i in range(n):
        y[i] = cells[n - T.int64(1) - i]


def test_a_parallel_loop_is_a_function_that_the_host_starts():
    kernel = kernels(share_rows).table["double"]
    assert kernel.symbol == "relaxd_m_k_double"
    assert kernel.needs_context
    assert not kernel.needs_scratch
    assert kernel.dims == ((0, 0),)
    (task,) = kernel.tasks
    text = assembly(tvm.IRModule({"double": share_rows}), TARGET, threads=True, form="ll")
    launch, symbol = (name.replace("_m_", "_") for name in (task.launch, task.symbol))
    assert f"call i32 @{launch}" in text
    assert re.search(rf"define\b.* i32 @{symbol}\(i64", text)


def test_a_kernel_whose_host_failed_fails():
    _, text, _ = convert(share_rows)
    assert re.search(
        r'if T.call_extern\("int32", "double_launch0".* != 0:\n\s+.*throw_last_error', text
    )


def convert(function):
    """The kernel, and the statements of its function and of its task."""
    plain = Plain()
    kernel = plain.kernel(function.with_attr("global_symbol", "double"))
    return kernel, *(plain.functions[name].script() for name in ("double", "double_task0"))


def profitable_from(least, n):
    """`share_rows`, in the vocabulary of the kernels."""
    x, y = (tirx.decl_buffer([n], "float32", name=name) for name in "xy")
    with statements() as body:
        cell = alloc([1], "float32", "cell")
        store(cell, x[0], 0)
        with parallel(n, n > const(least)) as i:
            store(y, x[i] + cell[0], i)
    return tirx.PrimFunc([x, y], body.stmt)


def test_a_loop_is_one_function_that_threads_or_the_kernel_call():
    kernel, text, task = convert(profitable_from(1000, tirx.Var("n", "int64")))
    assert len(kernel.tasks) == 1
    assert re.search(r'"double_launch0", context, n', text)
    assert re.search(r'"double_task0", T.int64\(0\), n', text)
    assert "for " not in text
    assert "for " in task


@pytest.mark.parametrize("n", [tirx.Var("n", "int64"), const(5000)])
def test_without_threads_the_serial_twin_is_left(n):
    for function in (share_rows, profitable_from(1000, n)):
        kernel = kernels(function, threads=False).table["double"]
        assert (kernel.tasks, kernel.needs_context) == ((), False)


def test_working_memory_is_counted_over_the_extents():
    kernel = kernels(reverse_rows).table["double"]
    assert kernel.needs_scratch
    for value, size in ((1, 64), (16, 64), (17, 128), (1000, 4032)):
        text, needed = fill_size(kernel.scratch, [str(value)], ["x", "y"])
        assert needed == [str(value)]
        assert "RD_" not in text  # what a tensor holds fits into 64 bits
        assert eval(text, {"rd_floordiv": operator.floordiv, "rd_max": max}) == size


def test_what_a_kernel_takes_can_be_written_down():
    for function in (share_rows, reverse_rows, profitable_from(1000, tirx.Var("n", "int64"))):
        kernel = kernels(function).table["double"]
        assert Kernel.of_json(json.loads(json.dumps(dataclasses.asdict(kernel)))) == kernel


def test_working_memory_that_depends_on_values_is_refused():
    @T.prim_func(private=True, s_tir=True)
    def by_value(x: T.Buffer((T.int64(1),), "int64"), y: T.Buffer((T.int64(1),), "int64")):
        count: T.let[T.int64] = x[T.int64(0)]
        cells = T.alloc_buffer((count,), "int64")
        for i in range(count):
            cells[i] = i
        y[T.int64(0)] = cells[T.int64(0)]

    with pytest.raises(CodegenError) as caught:
        kernels(by_value)
    assert caught.value.code == "codegen.scratch"
