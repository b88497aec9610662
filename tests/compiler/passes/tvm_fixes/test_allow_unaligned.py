"""Kernels take arguments that lie anywhere in memory, as slices of numpy arrays do."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import tirx as T

from compiler.passes.tvm_fixes.allow_unaligned import AllowUnaligned

op = relax.op


@T.prim_func(private=True, s_tir=True)
def before(x: T.Buffer((T.int64(8),), "float32"), y: T.Buffer((T.int64(8),), "float32")):
    flat_x = T.decl_buffer((T.int64(8),), data=x.data)
    flat_y = T.decl_buffer((T.int64(8),), data=y.data)
    for i in range(T.int64(8)):
        flat_y[i] = flat_x[i] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def after(
    x: T.Buffer((T.int64(8),), "float32", align=4), y: T.Buffer((T.int64(8),), "float32", align=4)
):
    cell = T.alloc_local(
        (T.int64(1),), "int64", annotations={"disable_lower_builtin": T.bool(True)}
    )
    cell[T.int64(0)] = T.int64(0)
    origin: T.let[T.int64] = cell[T.int64(0)]
    flat_x = T.decl_buffer((T.int64(8),), data=x.data, align=4)
    flat_y = T.decl_buffer((T.int64(8),), data=y.data, align=4)
    for i in range(T.int64(8)):
        flat_y[i + origin] = flat_x[i + origin] + T.float32(1)


def test_every_access_of_an_argument_starts_at_an_origin_that_nobody_knows():
    assert AllowUnaligned().apply(tvm.IRModule({"main": before}))["main"].script() == after.script()


def test_a_vector_of_neighbours_stays_one():
    """A ramp plus a number would be a gather."""

    @T.prim_func(private=True, s_tir=True)
    def copied(x: T.Buffer((T.int64(8),), "float32"), y: T.Buffer((T.int64(8),), "float32")):
        y[T.Ramp(T.int64(0), T.int64(1), 8)] = x[T.Ramp(T.int64(0), T.int64(1), 8)]

    text = AllowUnaligned().apply(tvm.IRModule({"main": copied}))["main"].script()
    assert "y[origin:origin + T.int64(8)] = x[T.Ramp(origin, T.int64(1), 8)]" in text


def put_at(array, offset):
    """A tensor over a copy of the array that begins `offset` bytes after a multiple of 64."""
    room = np.zeros(array.nbytes + 128, "uint8")
    start = -room.ctypes.data % 64 + offset
    view = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return tvm_ffi.from_dlpack(view)


@pytest.mark.parametrize("offset", [0, 4, 16, 36])
def test_rows_are_copied_from_anywhere(offset, compile_graph, draw):
    """LLVM makes calls of memcpy of such loops, for as much alignment as the arguments are declared
    to have.
    """
    shapes = {"past": (("b", 2, "past", 16), "float32"), "new": (("b", 2, "seq", 16), "float32")}
    model = compile_graph(lambda builder, past, new: op.concat([past, new], axis=2), shapes)
    for b, past, seq in ((2, 1, 1), (2, 5, 3), (3, 200, 100)):
        parts = [
            draw.standard_normal((b, 2, length, 16)).astype("float32") for length in (past, seq)
        ]
        rows = model.machine["main"](*(put_at(part, offset) for part in parts)).numpy()
        np.testing.assert_array_equal(rows, np.concatenate(parts, axis=2))
