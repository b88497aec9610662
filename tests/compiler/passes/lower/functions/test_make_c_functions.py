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
    otherwise,
    parallel,
    serial,
    share_out,
    statements,
    store,
    when,
)
from compiler.tir.exprs import const
from compiler.tir.loops import SHARES

TARGET = targets.resolve("x86-64-v3")


def kernels(function, threads=True):
    return compile_kernels(tvm.IRModule({"double": function}), TARGET, "relaxd_m", threads)


@T.prim_func(private=True, s_tir=True)
def share_rows(a: T.handle, b: T.handle):
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
    assert re.search(rf"define\b.* i32 @{symbol}\(i32", text)


def test_a_kernel_whose_host_failed_fails():
    _, text, _ = convert(share_rows)
    assert re.search(
        r'if T.call_extern\("int32", "double_launch0".* != 0:\n\s+.*throw_last_error', text
    )


def convert(function):
    """The kernel, and the statements of its function and of its task."""
    plain = Plain("relaxd_m")
    kernel = plain.kernel(function.with_attr("global_symbol", "double"))
    return kernel, *(plain.functions[name].script() for name in ("double", "double_task0"))


def taking_shares(n):
    """`share_rows`, in the vocabulary of the kernels."""
    x, y = (tirx.decl_buffer([n], "float32", name=name) for name in "xy")
    with statements() as body:
        for i in share_out(n, n > const(1000)):
            store(y, x[i] * tirx.const(2, "float32"), i)
    return tirx.PrimFunc([x, y], body.stmt)


def test_the_serial_twin_is_one_call_of_the_task_for_everything():
    kernel, text, task = convert(share_rows)
    (only,) = kernel.tasks
    assert (only.flags, only.alone) == (None, 1)
    assert '"double_task0", 0, 1,' in text
    assert "for " not in text
    assert "for " in task


def test_a_worker_that_takes_shares_alone_gets_no_flags():
    kernel, text, _ = convert(taking_shares(tirx.Var("n", "int64")))
    (only,) = kernel.tasks
    assert only.flags is not None
    assert only.alone == SHARES
    assert re.search(rf'"double_task0", 0, {SHARES},.*reinterpret', text)


def test_a_loop_over_what_its_branch_alone_declares_keeps_its_serial_twin():
    n = tirx.Var("n", "int64")
    x, y = (tirx.decl_buffer([n], "float32", name=name) for name in "xy")
    with statements() as body:
        with when(n > const(1000)):
            cell = alloc([1], "float32", "kept")
            store(cell, x[0], 0)
            with parallel(n) as i:
                store(y, x[i] * cell[0], i)
        with otherwise(), serial(n) as i:
            store(y, x[i], i)
    _, text, _ = convert(tirx.PrimFunc([x, y], body.stmt))
    assert '"double_launch0"' in text
    assert '"double_task0"' not in text
    assert "y[i] = x[i]" in text


@pytest.mark.parametrize("n", [tirx.Var("n", "int64"), const(5000)])
def test_without_threads_the_serial_twin_is_left(n):
    for function in (share_rows, taking_shares(n)):
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
    for function in (share_rows, reverse_rows, taking_shares(tirx.Var("n", "int64"))):
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
