import numpy as np
import pytest
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.script import tirx as T

from compiler.errors import PassError
from compiler.passes.gpu.narrow import narrow
from compiler.passes.gpu.narrow_kernels import narrow_kernel
from tests.compiler.passes.gpu.programs import picked
from tests.compiler.passes.gpu.serial import OnProcessor


@T.prim_func(private=True, s_tir=True)
def before(x: T.Buffer((8,), "int64"), y: T.Buffer((8,), "int64")):
    for i in range(T.int64(8)):
        with T.sblock("y"):
            at = T.axis.spatial(T.int64(8), i)
            y[at] = T.Select(x[at] < T.int64(0), x[at] + T.int64(8), T.Cast("int64", T.Cast("float32", x[at])))


@T.prim_func(private=True, s_tir=True)
def after(x: T.Buffer((T.int32(8),), "int32"), y: T.Buffer((T.int32(8),), "int32")):
    for i in range(8):
        with T.sblock("y"):
            at = T.axis.spatial(8, i)
            y[at] = T.Select(x[at] < 0, x[at] + 8, T.Cast("int32", T.Cast("float32", x[at])))


def test_indices_and_values_become_32_bits_wide():
    assert narrow_kernel(before).script() == after.script().replace("def after", "def main")


def test_a_constant_beyond_32_bits_is_refused():
    @T.prim_func(private=True, s_tir=True)
    def huge(y: T.Buffer((1,), "int64")):
        y[0] = T.int64(1 << 40)

    with pytest.raises(PassError) as caught:
        narrow_kernel(huge)
    assert caught.value.code == "pass.narrow_integers"


def test_inputs_and_outputs_keep_their_types_and_values():
    graph, expected = picked()
    module = narrow(relax.transform.LegalizeOps()(graph))
    assert [str(field.dtype) for field in module["main"].ret_ty.fields] == ["float32", "int64"]
    run = OnProcessor(module)
    for size in (1, 5):
        index = np.random.default_rng(size).integers(0, 10, size)
        for got, want in zip(run(index), expected(index), strict=True):
            np.testing.assert_array_equal(got, want)


def test_no_kernel_holds_a_64_bit_integer():
    graph, _ = picked()
    module = narrow(relax.transform.LegalizeOps()(graph))
    wide = []

    def note(node):
        if isinstance(node.ty, ir.PrimType) and str(node.ty) == "int64":
            wide.append(node)

    for func in module.functions.values():
        if isinstance(func, tirx.PrimFunc):
            tvm_ffi.structural_walk(func, ((ir.Var, ir.prim.expr.IntImm, ir.TensorLoad), note))
    assert not wide
