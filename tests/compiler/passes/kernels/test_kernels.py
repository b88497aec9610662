"""One small example of each kernel family: a tensor program, and in `after/` the loops that it
becomes.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi

from compiler.ir.ops.quantized.block_matmul import KERNEL_NAMES, Blocks, real_at
from compiler.passes.cpu.schedule import ScheduleKernels
from compiler.passes.fusion.fuse_attention import FuseAttention
from compiler.passes.layout.channels_last import ChannelsLast
from compiler.passes.pack.conv import PackConv
from compiler.passes.pack.integer import CENTRED, PackInteger
from compiler.passes.pack.nbits import PackNBits
from compiler.recurrences.cells import Cell
from compiler.recurrences.layer import Recurrence
from compiler.recurrences.recurrent import emit_recurrence
from compiler.targets.vector_unit import IntegerDot, VectorUnit
from tests.compiler.conftest import build_module
from tests.compiler.passes.kernels.loops import loops, nest

op = relax.op
AFTER = Path(__file__).with_name("after")
TWO_LANES = VectorUnit(vector_bits=64, registers=8, fma=True, unroll=2)
"""Small enough to read what is unrolled: tiles of 2 rows by 2 vectors, two steps of a sum in a row.
"""
FOUR_LANES = VectorUnit(vector_bits=128, registers=8, fma=True)
MORE_REGISTERS = VectorUnit(vector_bits=64, registers=16, fma=True)


WORDS = VectorUnit(
    vector_bits=64,
    registers=8,
    fma=True,
    integer_dots=(IntegerDot("llvm.x86.avx2.pmadd.wd", 2, "int16", "int16", False),),
)
"""It multiplies two integers of 16 bits at once."""
BYTES = VectorUnit(
    vector_bits=128,
    registers=8,
    fma=True,
    integer_dots=(IntegerDot("llvm.x86.avx512.vpdpbusd.128", 4, "uint8", "int8", True),),
)
"""It multiplies four integers of 8 bits at once, and adds them up."""


def const(value: int) -> tirx.IntImm:
    return tirx.IntImm("int64", value)


def tensor(name: str, *shape: int) -> Any:
    return te.placeholder([const(extent) for extent in shape], name=name)


def reduce_axes(*extents: int) -> list[Any]:
    return [
        te.reduce_axis((const(0), const(extent)), name=name)
        for extent, name in zip(extents, "kmc", strict=False)
    ]


def compute(shape: tuple[int, ...], value: Callable[..., Any], name: str = "y") -> Any:
    return te.compute([const(extent) for extent in shape], value, name=name)


def matmul() -> list[Any]:
    """Two tiles of rows and one more row, panels of four columns, with a rectifier behind
    the sum.
    """
    x, panels, (k,) = tensor("x", 5, 3), tensor("panels", 2, 3, 4), reduce_axes(3)
    accumulators = compute(
        (5, 8), lambda i, j: te.sum(x[i, k] * panels[j // 4, k, j % 4], axis=[k]), "sums"
    )
    return [
        x,
        panels,
        compute((5, 8), lambda i, j: tirx.max(accumulators[i, j], tirx.const(0, "float32"))),
    ]


def convolution() -> list[Any]:
    """A window of 2x2 over an image padded above and to the left, three columns in a
    panel of four.
    """
    x, panels, (k, m, c) = tensor("x", 1, 4, 4, 2), tensor("panels", 1, 8, 4), reduce_axes(2, 2, 2)

    def read(row: Any, column: Any, channel: Any) -> Any:
        inside = tirx.all(row >= 1, column >= 1)
        return tirx.if_then_else(
            inside, x[0, row - 1, column - 1, channel], tirx.const(0, "float32")
        )

    def value(n: Any, i: Any, j: Any, o: Any) -> Any:
        return te.sum(
            read(i + k, j + m, c) * panels[o // 4, (k * 2 + m) * 2 + c, o % 4], axis=[k, m, c]
        )

    return [x, panels, compute((1, 4, 4, 3), value)]


def both_computed() -> list[Any]:
    """Five columns, in two blocks of four."""
    x, w, (k,) = tensor("x", 3, 6), tensor("w", 6, 5), reduce_axes(6)
    return [x, w, compute((3, 5), lambda i, j: te.sum(x[i, k] * w[k, j], axis=[k]))]


def lines() -> list[Any]:
    """A window of two taps over lines of nine, in strips of two: the fifth begins at position 7."""
    x, w, (m, c) = tensor("x", 1, 2, 10, 2), tensor("w", 2, 2, 4), reduce_axes(2, 2)

    def value(n: Any, i: Any, j: Any, o: Any) -> Any:
        return te.sum(x[n, i, j + m, c] * w[m, c, o], axis=[m, c])

    return [x, w, compute((1, 2, 9, 4), value)]


def row_shares() -> list[Any]:
    """Each element over the sum of its row."""
    x, (k,) = tensor("x", 3, 7), reduce_axes(7)
    total = compute((3,), lambda i: te.sum(x[i, k], axis=[k]), "total")
    return [x, compute((3, 7), lambda i, j: x[i, j] / total[i])]


def concatenation() -> list[Any]:
    x, y = tensor("x", 3, 4), tensor("y", 3, 2)
    return [x, y, topi.concatenate([x, y], 1)]


def transpose() -> list[Any]:
    x = tensor("x", 3, 4)
    return [x, topi.transpose(x)]


def squares() -> list[Any]:
    """A transpose in squares of two by two, of which the last ones overlap."""
    x = tensor("x", 5, 4)
    return [x, topi.transpose(x)]


@pytest.mark.parametrize(
    "example",
    [matmul, convolution, both_computed, lines, row_shares, concatenation, transpose, squares],
)
def test_programs(example: Callable[[], list[Any]]) -> None:
    before = tvm.IRModule({"main": te.create_prim_func(example())})
    after = ScheduleKernels(TWO_LANES).apply(before)["main"]
    assert loops(after) == (AFTER / f"{example.__name__}.txt").read_text()


def convolve(
    unit: VectorUnit,
    image: tuple[int, ...],
    weight: tuple[int, ...],
    pads: tuple[int, ...],
    groups: int = 1,
) -> tirx.PrimFunc:
    """The kernel of a convolution of an image [N, C, H, W] that is an input."""
    constant = relax.const(np.full(weight, 0.5, "float32"))
    graph = build_module(
        lambda builder, x: op.nn.conv2d(x, constant, 1, pads, 1, groups), {"x": (image, "float32")}
    )
    module = ScheduleKernels(unit).apply(PackConv(unit).apply(ChannelsLast().apply(graph)))
    (kernel,) = (func for func in module.functions.values() if isinstance(func, tirx.PrimFunc))
    return kernel


def test_depthwise_convolution() -> None:
    kernel = convolve(FOUR_LANES, (1, 4, 4, 7), (4, 1, 2, 2), (1, 1, 0, 0), groups=4)
    assert loops(kernel) == (AFTER / "depthwise.txt").read_text()


def test_convolution_in_groups() -> None:
    kernel = convolve(TWO_LANES, (1, 4, 1, 8), (4, 2, 1, 2), (0, 0, 0, 0), groups=2)
    assert loops(kernel) == (AFTER / "groups.txt").read_text()


def test_convolution_to_one_channel() -> None:
    """Seven positions of runs of three elements: a vector, and one that skips the first one's."""
    kernel = convolve(TWO_LANES, (1, 3, 2, 7), (1, 3, 2, 1), (0, 0, 0, 0))
    assert loops(kernel) == (AFTER / "single_conv.txt").read_text()


def test_winograd() -> None:
    """The loops and branches alone: both transforms are unrolled."""
    kernel = convolve(MORE_REGISTERS, (1, 16, 16, 16), (16, 16, 3, 3), (1, 1, 1, 1))
    assert nest(kernel) == (AFTER / "winograd.txt").read_text()


def test_attention() -> None:
    """The loops and branches alone, for nine queries and ten keys."""

    def graph(builder: Any, q: Any, k: Any, v: Any) -> Any:
        scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 2, 1]))))
        return builder.emit(op.matmul(builder.emit(op.nn.softmax(scores)), v))

    shapes = {"q": (2, 9, 8), "k": (2, 10, 8), "v": (2, 10, 8)}
    fused = FuseAttention().apply(
        build_module(graph, {name: (shape, "float32") for name, shape in shapes.items()})
    )
    assert (
        nest(ScheduleKernels(TWO_LANES).apply(fused)["attention"])
        == (AFTER / "attention.txt").read_text()
    )


def test_integers() -> None:
    """Three rows of six bytes less a zero point, by four columns: three groups of two."""
    weight = relax.const(np.arange(24, dtype="float32").reshape(6, 4) - 12)

    def centred(x: Any, zero: Any) -> Any:
        return te.compute(
            x.shape,
            lambda *i: (x(*i).astype("int32") - zero().astype("int32")).astype("float32"),
        )

    def graph(builder: Any, x: Any) -> Any:
        zero = relax.const(np.uint8(128))
        return op.matmul(builder.emit_te(centred, x, zero, primfunc_name_hint=CENTRED), weight)

    packed = PackInteger(WORDS).apply(build_module(graph, {"x": ((3, 6), "uint8")}))
    kernel = ScheduleKernels(WORDS).apply(packed)["integer_matmul"]
    assert loops(kernel) == (AFTER / "integers.txt").read_text()


@pytest.mark.parametrize("quantized", [False, True], ids=["floats", "rounded"])
def test_blockwise_quantized_weights(quantized: bool) -> None:
    """A row of floats, or three that are rounded, by a panel of four or eight columns."""
    random = np.random.default_rng(0)
    numbers = random.integers(0, 256, (4, 1, 8)).astype("uint8")
    table = Blocks(4, 16, 16, numbers, random.random((4, 1)).astype("float32"), None)

    def graph(builder: Any, x: Any) -> Any:
        def matmul(x: Any, *tensors: Any) -> Any:
            (k,) = reduce_axes(16)
            return te.compute(
                (x.shape[0], const(4)),
                lambda i, j: te.sum(x[i, k] * real_at(table, tensors, j, k), axis=[k]),
            )

        constants = [relax.const(tensor.data) for tensor in table.tensors]
        return builder.emit_te(matmul, x, *constants, primfunc_name_hint=KERNEL_NAMES[4, quantized])

    unit, rows = (BYTES, 3) if quantized else (TWO_LANES, 1)
    packed = PackNBits(unit).apply(build_module(graph, {"x": ((rows, 16), "float32")}))
    kernel = ScheduleKernels(unit).apply(packed)["nbits_panels"]
    name = "rounded_bits.txt" if quantized else "bits.txt"
    assert loops(kernel) == (AFTER / name).read_text()


def test_recurrence() -> None:
    """The loops and branches alone: an LSTM of eight units, three steps, two tiles of rows."""
    cell = Cell("LSTM", (tirx.sigmoid, tirx.tanh, tirx.tanh))
    layer = Recurrence(cell, const(8), const(1), False, False, False, const(3), const(12))
    assert nest(emit_recurrence(layer)) == (AFTER / "recurrence.txt").read_text()


def test_directions_of_a_recurrence_are_tasks_side_by_side() -> None:
    cell = Cell("LSTM", (tirx.sigmoid, tirx.tanh, tirx.tanh))
    layer = Recurrence(cell, const(8), const(1), False, False, False, const(3), const(12))
    both = nest(emit_recurrence(layer, replace(layer, backward=True))).splitlines()
    one = (AFTER / "recurrence.txt").read_text().splitlines()
    assert both[0] == "for i in range(4):"
    assert len(both) - 1 >= 2 * (len(one) - 1)
    assert sum("for step in range(3)" in line for line in both) == 2
