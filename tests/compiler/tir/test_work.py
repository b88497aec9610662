"""Operations and bytes of programs, against counts by hand at several sizes."""

from typing import Any

import pytest
from tvm import te, tirx

from compiler.tir.building import otherwise, parallel, serial, statements, store, when
from compiler.tir.polynomials import Polynomial, UnknownExtent
from compiler.tir.work import ELEMENT_FLOPS, Work, work_of
from relaxd.contract.dims.axes import Axis

N = tirx.Var("n", "int64")
VALUES = {N: Polynomial.atom("n")}
SIZES = (1, 2, 7, 31, 512)


def work(*tensors: Any) -> Work:
    return work_of(te.create_prim_func(list(tensors), "int64"), VALUES)


def evaluate(count: Polynomial, n: int) -> int:
    return Axis(str(count)).evaluate({"n": n})


def tensor(*shape: Any, dtype: str = "float32", name: str = "x") -> Any:
    return te.placeholder(shape, dtype, name)


def test_matmul() -> None:
    x, w, k = tensor(N, 48), tensor(48, 96, name="w"), te.reduce_axis((0, 48), "k")
    y = te.compute((N, 96), lambda i, j: te.sum(x[i, k] * w[k, j], axis=[k]))
    counted = work(x, w, y)
    for n in SIZES:
        assert evaluate(counted.flops, n) == 2 * n * 48 * 96
        assert evaluate(counted.bytes, n) == 4 * (n * 48 + 48 * 96 + n * 96)
    assert counted.dtype == "float32"


def test_a_convolution_with_padding_reads_the_image_once() -> None:
    x, w = tensor(1, N, N, 16), tensor(3, 3, 16, 32, name="w")
    r, s, c = (te.reduce_axis((0, extent), "rsc"[i]) for i, extent in enumerate((3, 3, 16)))

    def padded(i: Any, j: Any, channel: Any) -> Any:
        inside = tirx.all(i >= 1, i <= N, j >= 1, j <= N)
        return tirx.if_then_else(inside, x[0, i - 1, j - 1, channel], tirx.const(0.0, "float32"))

    y = te.compute(
        (1, N, N, 32),
        lambda b, i, j, o: te.sum(padded(i + r, j + s, c) * w[r, s, c, o], axis=[r, s, c]),
    )
    counted = work(x, w, y)
    for n in SIZES:
        assert evaluate(counted.flops, n) == 2 * n * n * 32 * 9 * 16
        assert evaluate(counted.bytes, n) == 4 * (n * n * 16 + 9 * 16 * 32 + n * n * 32)


def test_softmax() -> None:
    x, j, k = tensor(N, 96), te.reduce_axis((0, 96), "j"), te.reduce_axis((0, 96), "k")
    greatest = te.compute((N,), lambda i: te.max(x[i, j], axis=[j]))
    powers = te.compute((N, 96), lambda i, c: te.exp(x[i, c] - greatest[i]))
    total = te.compute((N,), lambda i: te.sum(powers[i, k], axis=[k]))
    y = te.compute((N, 96), lambda i, c: powers[i, c] / total[i])
    counted = work(x, y)
    for n in SIZES:
        # The greatest, a difference, exp, a sum and a quotient for each element.
        assert evaluate(counted.flops, n) == 5 * n * 96
        assert evaluate(counted.bytes, n) == 4 * 2 * n * 96


def test_a_gather_reads_the_rows_it_takes_and_no_more_than_the_table() -> None:
    table, ids = tensor(1000, 64), tensor(N, dtype="int64", name="ids")
    y = te.compute((N, 64), lambda i, j: table[ids[i], j])
    counted = work(table, ids, y)
    for n in (*SIZES, 4000):
        assert evaluate(counted.flops, n) == 0
        assert evaluate(counted.bytes, n) == 4 * 64 * min(1000, n) + 8 * n + 4 * 64 * n
    assert counted.dtype == ""


def test_a_slice_moves_what_it_takes() -> None:
    x = tensor(N, 4096)
    y = te.compute((N, 16), lambda i, j: x[i, j + 32])
    assert evaluate(work(x, y).bytes, 7) == 4 * 2 * 7 * 16


def test_a_value_that_a_loop_does_not_change_is_computed_once() -> None:
    """Block-wise quantized weights are dequantized once, not for each row."""
    x, w = tensor(N, 32), tensor(32, 8, dtype="int8", name="w")
    scale, k = tensor(8, name="scale"), te.reduce_axis((0, 32), "k")
    y = te.compute(
        (N, 8),
        lambda i, j: te.sum(x[i, k] * (w[k, j].astype("float32") * scale[j]), axis=[k]),
    )
    assert evaluate(work(x, w, scale, y).flops, 50) == 2 * 50 * 8 * 32 + 8 * 32


def test_integers_are_counted_and_told_apart() -> None:
    x, w, k = tensor(N, 32, dtype="int8"), tensor(32, 8, dtype="int8"), te.reduce_axis((0, 32))
    y = te.compute(
        (N, 8), lambda i, j: te.sum(x[i, k].astype("int32") * w[k, j].astype("int32"), axis=[k])
    )
    counted = work(x, w, y)
    assert (counted.dtype, evaluate(counted.flops, 3)) == ("int32", 2 * 3 * 8 * 32)
    assert evaluate(counted.bytes, 3) == 3 * 32 + 32 * 8 + 4 * 3 * 8


def test_a_stage_may_state_its_operations() -> None:
    x, k = tensor(N, 6), te.reduce_axis((0, 6), "k")
    y = te.compute(
        (N,), lambda i: te.sum(x[i, k] * x[i, 5 - k], axis=[k]), attrs={ELEMENT_FLOPS: 4}
    )
    counted = work(x, y)
    assert evaluate(counted.flops, 9) == 4 * 9
    assert evaluate(counted.bytes, 9) == 4 * (9 * 6 + 9)


def test_a_parallel_loop_counts_once() -> None:
    x, y = (tirx.decl_buffer([N, 8], "float32", name=name) for name in "xy")
    with statements() as body, parallel(N, N > 100) as i, serial(8) as j:
        store(y, x[i, j] * 2.0, i, j)
    counted = work_of(tirx.PrimFunc([x, y], body.stmt), VALUES)
    assert (evaluate(counted.flops, 5), evaluate(counted.bytes, 5)) == (5 * 8, 4 * 2 * 5 * 8)


def test_branches_that_do_different_work_are_unknown() -> None:
    x, y = (tirx.decl_buffer([N], "float32", name=name) for name in "xy")
    with statements() as body, serial(N) as i:
        with when(x[i] > 0.0):
            store(y, x[i] * 2.0 + 1.0, i)
        with otherwise():
            store(y, x[i], i)
    with pytest.raises(UnknownExtent, match="branches that differ"):
        work_of(tirx.PrimFunc([x, y], body.stmt), VALUES)


def test_loops_whose_end_only_a_run_knows_are_unknown() -> None:
    x = tirx.decl_buffer([N], "float32", name="x")
    stop = tirx.decl_buffer([1], "int64", name="stop")
    body = tirx.While(stop[0] > 0, tirx.BufferStore(x, x[0] + 1.0, [0]))
    with pytest.raises(UnknownExtent, match="While"):
        work_of(tirx.PrimFunc([x, stop], body), VALUES)
