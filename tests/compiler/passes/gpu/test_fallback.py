import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.script import tirx as T

from compiler.passes.gpu.bound import is_bound
from compiler.passes.gpu.fallback import bind_nests, bind_one_thread
from compiler.passes.gpu.trial import refusal
from tests.compiler.passes.gpu.programs import CUDA, matmul, twice
from tests.compiler.passes.gpu.serial import serial
from tests.support.rounding import assert_matmul_close


@T.prim_func(private=True, s_tir=True)
def before(x: T.Buffer((100,), "float32"), y: T.Buffer((100,), "float32")):
    for i in range(T.int64(100)):
        with T.sblock("y"):
            v = T.axis.spatial(T.int64(100), i)
            y[v] = x[v] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def after(x: T.Buffer((100,), "float32"), y: T.Buffer((100,), "float32")):
    for block in T.thread_binding(T.int64(4), thread="blockIdx.x"):
        for thread in T.thread_binding(T.int64(32), thread="threadIdx.x"):
            index: T.let[T.int64] = block * T.int64(32) + thread
            if index < T.int64(100):
                i: T.let[T.int64] = T.int64(0) + index
                with T.sblock("y"):
                    v = T.axis.spatial(T.int64(100), i)
                    y[v] = x[v] + T.float32(1)


@T.prim_func(private=True, s_tir=True)
def running_sum(x: T.Buffer((8, 50), "float32"), y: T.Buffer((8, 50), "float32")):
    """Rows are independent, and what is in a row is not; nothing says so but `parallel`."""
    for row in T.parallel(T.int64(8)):
        y[row, 0] = x[row, 0]
        for i in range(T.int64(49)):
            y[row, i + T.int64(1)] = y[row, i] + x[row, i + T.int64(1)]


@T.prim_func(private=True, s_tir=True)
def counting(x: T.Buffer((50,), "float32"), y: T.Buffer((50,), "float32")):
    for i in range(T.int64(50)):
        y[i] = x[i] + T.if_then_else(T.int64(0) < i, y[i - T.int64(1)], T.float32(0))


def launches(func):
    """The extents of the blocks and threads of each grid."""
    extents = []

    def note(loop):
        if loop.thread_binding is not None:
            extents.append(loop.extent)

    tvm_ffi.structural_walk(func.body, (tirx.For, note), order="pre")
    return [int(extent) for extent in extents]


def run(func, *arrays, shape):
    built = tvm.compile(serial(func).with_attr("global_symbol", "main"), target="llvm")
    result = tvm.runtime.tensor(np.zeros(shape, "float32"))
    built(*(tvm.runtime.tensor(array) for array in arrays), result)
    return result.numpy()


def test_a_nest_becomes_a_grid_over_its_fused_loops():
    bound = bind_nests(before, 32)
    assert launches(bound) == launches(after) == [4, 32]
    x = np.arange(100, dtype="float32")
    np.testing.assert_array_equal(run(bound, x, shape=(100,)), x + 1)
    np.testing.assert_array_equal(run(after, x, shape=(100,)), x + 1)


def test_reduced_axes_stay_inside_a_thread(draw):
    bound = bind_nests(matmul(), 64)
    assert refusal(bound, CUDA) is None
    x, w = (
        draw.standard_normal((5, 32)).astype("float32"),
        draw.standard_normal((24, 32)).astype("float32"),
    )
    assert_matmul_close(run(bound, x, w, shape=(5, 24)), x, w.T)


def test_loops_marked_parallel_are_spread_and_others_without_blocks_are_not():
    assert launches(bind_nests(running_sum, 32)) == [1, 32]
    assert launches(bind_nests(counting, 32)) == [1, 1]
    x = np.arange(50, dtype="float32")
    np.testing.assert_allclose(run(bind_nests(counting, 32), x, shape=(50,)), np.cumsum(x))
    rows = np.random.default_rng(0).random((8, 50), "float32")
    np.testing.assert_allclose(
        run(bind_nests(running_sum, 32), rows, shape=(8, 50)), np.cumsum(rows, 1), rtol=1e-5
    )


@pytest.mark.parametrize(
    "program",
    [twice(), matmul(), running_sum, counting],
    ids=["map", "product", "parallel", "serial"],
)
def test_one_thread_takes_anything(program):
    bound = bind_one_thread(program)
    assert is_bound(bound)
    assert set(launches(bound)) == {1}
    assert refusal(bound, CUDA) is None


def test_stages_become_kernels_one_after_the_other():
    x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 40), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.softmax(x)))
    (func,) = [
        f
        for f in relax.transform.LegalizeOps()(builder.get()).functions.values()
        if isinstance(f, tirx.PrimFunc)
    ]
    bound = bind_nests(func, 128)
    assert refusal(bound, CUDA) is None
    values = np.random.default_rng(0).standard_normal((3, 40)).astype("float32")
    powers = np.exp(values - values.max(-1, keepdims=True))
    np.testing.assert_allclose(
        run(bound, values, shape=(3, 40)), powers / powers.sum(-1, keepdims=True), rtol=1e-5
    )


@T.prim_func(private=True, s_tir=True)
def reversing(source: T.handle, target: T.handle):
    n = T.int64()
    x = T.match_buffer(source, (n,))
    y = T.match_buffer(target, (n,))
    for _ in T.parallel(T.int64(1)):
        scratch = T.alloc_buffer((n,))
        for i in range(n):
            scratch[n - T.int64(1) - i] = x[i]
        for i in range(n):
            y[i] = scratch[i]


def test_scratch_of_symbolic_size_moves_to_global_memory():
    assert refusal(bind_nests(reversing, 32), CUDA) is not None
    bound = bind_one_thread(reversing)
    assert refusal(bound, CUDA) is None
    x = np.arange(7, dtype="float32")
    np.testing.assert_array_equal(run(bound, x, shape=(7,)), x[::-1])
