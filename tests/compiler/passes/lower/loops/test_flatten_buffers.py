"""Buffers become flat and booleans bytes; nothing else changes."""

import tvm
from tvm.script import tirx as T

from compiler.passes.lower.loops.flatten_buffers import FlattenBuffers


@T.prim_func(private=True, s_tir=True)
def deep(x: T.Buffer((T.int64(5), T.int64(3)), "float32"), y: T.Buffer((T.int64(4),), "float32")):
    scratch = T.alloc_buffer((T.int64(2), T.int64(3), T.int64(7)), "float32", scope="local")
    for i, j in T.grid(T.int64(2), T.int64(3)):
        scratch[i, j, j + T.int64(1)] = x[i + T.int64(1), j] + y[j]


@T.prim_func(private=True, s_tir=True)
def flat(x: T.Buffer((T.int64(5), T.int64(3)), "float32"), y: T.Buffer((T.int64(4),), "float32")):
    view = T.decl_buffer((T.int64(15),), data=x.data)
    scratch = T.alloc_buffer((T.int64(42),), "float32", scope="local")
    for i, j in T.grid(T.int64(2), T.int64(3)):
        scratch[(i * T.int64(3) + j) * T.int64(7) + (j + T.int64(1))] = (
            view[(i + T.int64(1)) * T.int64(3) + j] + y[j]
        )


@T.prim_func(private=True, s_tir=True)
def truths(x: T.Buffer((T.int64(5),), "bool"), y: T.Buffer((), "bool")):
    y[()] = x[T.int64(4)] and x[T.int64(0)]


@T.prim_func(private=True, s_tir=True)
def copy_strided(a: T.handle):
    x = T.match_buffer(a, (T.int64(5), T.int64(3)), strides=(T.int64(8), T.int64(2)))
    x[T.int64(1), T.int64(2)] = x[T.int64(3), T.int64(0)]


def lines(func):
    """The body as text, without layouts, which say that a buffer is dense."""
    text = FlattenBuffers().apply(tvm.IRModule({"main": func}))["main"].script()
    _, body = text.split("def main(", 1)
    return [line.strip().partition(", layout")[0].rstrip(")") for line in body.splitlines()[1:]]


def test_accesses_of_several_dimensions_become_one_offset():
    expected = [line.replace("view", "x_1", 1) for line in lines(flat)[:1]]
    expected += [line.replace("view[", "x_1[") for line in lines(flat)[1:]]
    assert lines(deep) == expected


def test_what_is_flat_stays():
    module = tvm.IRModule({"main": flat})
    tvm.ir.assert_structural_equal(FlattenBuffers().apply(module), module)


def test_booleans_are_read_and_written_as_bytes():
    *_, stored = lines(truths)
    first, second = 'T.Cast("bool", x_1[T.int64(4)])', 'T.Cast("bool", x_1[T.int64(0)]'
    assert stored.endswith(f' = T.Cast("int8", {first} and {second}')


def test_strides_say_where_elements_lie():
    assert lines(copy_strided)[-1] == "x_1[T.int64(12)] = x_1[T.int64(24)]"
