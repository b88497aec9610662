from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, relax, te, tirx
from tvm.script import tirx as T

from compiler.errors import PassError
from compiler.passes.gpu.narrow import Narrow
from compiler.passes.gpu.narrow_kernels import narrow_kernel
from compiler.passes.gpu.schedule import ScheduleOnGrid
from tests.compiler.passes.gpu.programs import gather, target_of
from tests.compiler.passes.gpu.serial import OnProcessor


@T.prim_func(private=True, s_tir=True)
def before(x: T.Buffer((8,), "int64"), y: T.Buffer((8,), "int64")):
    for i in range(T.int64(8)):
        with T.sblock("y"):
            v = T.axis.spatial(T.int64(8), i)
            y[v] = T.Select(
                x[v] < T.int64(0), x[v] + T.int64(8), T.Cast("int64", T.Cast("float32", x[v]))
            )


@T.prim_func(private=True, s_tir=True)
def after(x: T.Buffer((T.int32(8),), "int32"), y: T.Buffer((T.int32(8),), "int32")):
    for i in range(8):
        with T.sblock("y"):
            v = T.axis.spatial(8, i)
            y[v] = T.Select(x[v] < 0, x[v] + 8, T.Cast("int32", T.Cast("float32", x[v])))


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
    graph, expected = gather()
    module = Narrow().apply(relax.transform.LegalizeOps()(graph))
    assert [str(field.dtype) for field in module["main"].ret_ty.fields] == ["float32", "int64"]
    run = OnProcessor(module)
    for size in (1, 5):
        index = np.random.default_rng(size).integers(0, 10, size)
        for got, want in zip(run(index), expected(index), strict=True):
            np.testing.assert_array_equal(got, want)


def flag() -> tuple[tvm.IRModule, Callable[[np.ndarray], np.ndarray]]:
    """x[n] of int64 through a kept comparison, and through int8 and uint8 as far as they
    overflow.
    """
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n,), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            flags = builder.emit(relax.op.greater(x, relax.const(3, "int64")))
            both = builder.emit(
                relax.op.logical_and(flags, relax.op.less(x, relax.const(90, "int64")))
            )
            small = builder.emit(relax.op.add(relax.op.astype(x, "int8"), relax.const(100, "int8")))
            unsigned = builder.emit(relax.op.astype(relax.op.astype(x, "uint8"), "int64"))
            gather = builder.emit(relax.op.where(both, relax.op.astype(small, "int64"), unsigned))
            result = builder.emit_output(gather)
        builder.emit_func_output(result)

    def expected(values: np.ndarray) -> np.ndarray:
        small = (values.astype("int8").astype("int64") + 100).astype("int8")
        return np.where(
            (values > 3) & (values < 90),
            small.astype("int64"),
            values.astype("uint8").astype("int64"),
        )

    return builder.get(), expected


def test_booleans_are_kept_as_numbers_and_small_integers_overflow_as_before():
    graph, expected = flag()
    run = OnProcessor(Narrow().apply(relax.transform.LegalizeOps()(graph)))
    values = np.array([-1, 0, 3, 4, 27, 28, 89, 90, 200, 300], "int64")
    np.testing.assert_array_equal(run(values)[0], expected(values))


def test_what_is_made_for_webgpu_has_no_type_that_wgsl_lacks():
    graph, _ = flag()
    scheduled = ScheduleOnGrid(target_of("webgpu")).apply(
        Narrow().apply(relax.transform.LegalizeOps()(graph))
    )
    kernels = [func for func in scheduled.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert len(kernels) > 5
    x = te.placeholder((tirx.Var("n", "int32"),), "float32", name="x")
    unchanged = te.create_prim_func(
        [x, te.compute(x.shape, lambda i: x[i] > tirx.const(0, "float32"), name="y")]
    )
    with pytest.raises(PassError, match="WGSL has no type i8"):
        ScheduleOnGrid(target_of("webgpu")).apply(tvm.IRModule({"main": unchanged}))


@pytest.mark.parametrize("dtype", ["bool", "uint8"])
def test_an_interface_of_small_types_is_refused(dtype):
    x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"),), dtype))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.astype(x, "float32"))
        builder.emit_func_output(result)
    with pytest.raises(PassError, match=f"input 'x' is of {dtype}") as caught:
        Narrow().apply(relax.transform.LegalizeOps()(builder.get()))
    assert caught.value.code == "pass.narrow_integers"


def test_an_input_whose_length_alone_counts_may_be_small():
    n = tirx.Var("n", "int64")
    x, rows = (
        relax.Var("x", relax.TensorType((n, 2), "float32")),
        relax.Var("rows", relax.TensorType((n,), "int8")),
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, rows]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.exp(x))
        builder.emit_func_output(result)
    narrowed = Narrow().apply(relax.transform.LegalizeOps()(builder.get()))["main"]
    assert [str(param.ty.dtype) for param in narrowed.params] == ["float32", "int8"]


def test_no_kernel_holds_a_64_bit_integer():
    graph, _ = gather()
    module = Narrow().apply(relax.transform.LegalizeOps()(graph))
    wide = []

    def note(node):
        if isinstance(node.ty, ir.PrimType) and str(node.ty) == "int64":
            wide.append(node)

    for func in module.functions.values():
        if isinstance(func, tirx.PrimFunc):
            tvm_ffi.structural_walk(func, ((ir.Var, ir.prim.expr.IntImm, ir.TensorLoad), note))
    assert not wide
