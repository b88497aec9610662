"""A small graph of every kernel family."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from compiler.ir.ops.quantized.block_matmul import CODES, KERNEL_NAMES, Blocks, dequantize, real_at
from compiler.passes.cpu.families.attention import plan as attention_plan
from compiler.passes.cpu.families.matmul import plan as matmul_plan
from compiler.passes.cpu.families.matmul.plan import tiling_for
from compiler.passes.cpu.families.pooling import plan as pooling_plan
from compiler.passes.cpu.shared.chunks import CHUNK
from compiler.passes.cpu.shared.register_tile import panel_width, register_tile
from compiler.passes.pack.integer import CENTRED
from compiler.recurrences.cells import Cell
from compiler.recurrences.layer import LANES, Recurrence
from compiler.recurrences.recurrent import emit_recurrence
from compiler.targets.vector_unit import VectorUnit
from tests.compiler.passes import references
from tests.compiler.passes.family import Array, Dim, Family
from tests.compiler.passes.generic_families import GENERIC

op = relax.op


def _constant(*shape: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng(shape).standard_normal(shape) * scale).astype("float32")


def _rows(unit: VectorUnit, depth: int, columns: int, run: int | None = None) -> tuple[int, ...]:
    """Where a register tile, a few of them and a block of rows end."""
    tiling = tiling_for(unit, panel_width(unit, columns), depth, run)
    return (tiling.mr, 2 * tiling.mr, matmul_plan.FEW_TILES * tiling.mr, tiling.block_rows)


def _columns(unit: VectorUnit) -> tuple[int, ...]:
    return (unit.lanes(32), register_tile(unit)[1])


def _none(unit: VectorUnit) -> tuple[int, ...]:
    return ()


def matmul(depth: int, columns: int) -> Family:
    """Packed weights, with a bias, a function and a residual behind the sum."""
    weight, bias = _constant(depth, columns, scale=depth**-0.5), _constant(columns)

    def graph(builder: Any, x: Any, residual: Any) -> Any:
        return op.add(
            op.tanh(op.add(op.matmul(x, relax.const(weight)), relax.const(bias))), residual
        )

    return Family(
        "matmul",
        graph,
        {"x": (("b", "s", depth), "float32"), "residual": (("b", "s", columns), "float32")},
        {
            "b": Dim(3, _none, least=0),
            "s": Dim(257, lambda unit: _rows(unit, depth, columns), least=0),
        },
        lambda x, residual: np.tanh(x @ weight + bias) + residual,
    )


def _centred(builder: Any, x: Any, zero: int) -> Any:
    """Bytes less a zero point, by the program that the importers write."""

    def centred(x: Any) -> Any:
        return te.compute(
            x.shape, lambda *index: x(*index).astype("float32") - tirx.const(zero, "float32")
        )

    return builder.emit_te(centred, x, primfunc_name_hint=CENTRED)


def quantized_matmul(depth: int, columns: int, zero: int = 0) -> Family:
    """8-bit integers less a zero point by a constant matrix of such, as quantized operators come
    from the importers.
    """
    weight = np.random.default_rng((depth, columns)).integers(-128, 128, (depth, columns))

    def graph(builder: Any, x: Any) -> Any:
        data = _centred(builder, x, zero) if zero else op.astype(x, "float32")
        return op.astype(op.matmul(data, relax.const(weight.astype("float32"))), "int32")

    dims = {"n": Dim(131, lambda unit: (4, register_tile(unit)[0], 64), least=0)}
    return Family(
        "int8",
        graph,
        {"x": (("n", depth), "uint8")},
        dims,
        lambda x: (x - np.int64(zero)) @ weight,
        below=256,
    )


def blockwise(bits: int, block: int, depth: int, columns: int, codes: bool = False) -> Family:
    """Rows of floats by block-wise quantized weights, or such of 4-bit codes, by the program that
    the importers write.
    """
    random = np.random.default_rng((bits, block, depth))
    blocks = -(-depth // block)
    numbers = random.integers(0, 256, (columns, blocks, block * bits // 8)).astype("uint8")
    scales, zeros = (random.random((columns, blocks)).astype("float32") for _ in range(2))
    table = Blocks(bits, block, depth, numbers, scales * 0.1, zeros * (1 << bits))
    if codes:
        codebook = random.standard_normal(16).astype("float32")
        table = replace(table, zeros=None, codebook=codebook)
    weight = dequantize(table).astype("float64").T

    def graph(builder: Any, x: Any, residual: Any) -> Any:
        def matmul(x: Any, *tensors: Any) -> Any:
            k = te.reduce_axis((tirx.IntImm("int64", 0), tirx.IntImm("int64", depth)), name="k")
            return te.compute(
                (x.shape[0], tirx.IntImm("int64", columns)),
                lambda i, j: te.sum(x[i, k] * real_at(table, tensors, j, k), axis=[k]),
            )

        constants = [relax.const(tensor.data) for tensor in table.tensors]
        name = CODES if codes else KERNEL_NAMES[bits, False]
        result = builder.emit_te(matmul, x, *constants, primfunc_name_hint=name)
        return op.add(result, residual)

    return Family(
        "nbits",
        graph,
        {"x": (("n", depth), "float32"), "residual": (("n", columns), "float32")},
        {"n": Dim(131, lambda unit: (4, 8, 64), least=0)},
        lambda x, residual: x @ weight + residual,
    )


def quantized_convolution(channels: int, out: int, kernel: int, stride: int, zero: int) -> Family:
    """The same over images, whose border stands for the zero point."""
    weight, pad = (
        np.random.default_rng((channels, out)).integers(-128, 128, (out, channels, kernel, kernel)),
        kernel // 2,
    )

    def graph(builder: Any, x: Any) -> Any:
        data = _centred(builder, x, zero)
        return op.astype(
            op.nn.conv2d(data, relax.const(weight.astype("float32")), stride, [pad] * 4), "int32"
        )

    return Family(
        "int8",
        graph,
        {"x": (("n", channels, "h", "w"), "uint8")},
        {
            "n": Dim(3, _none),
            "h": Dim(13, lambda unit: (kernel,)),
            "w": Dim(29, lambda unit: (kernel, 6 * stride, 24 * stride)),
        },
        lambda x: references.convolution(
            x.astype("float64") - zero, weight, (stride, stride), [pad] * 4
        ).astype("int64"),
        below=256,
    )


def convolution(
    channels: int,
    out: int,
    kernel: int,
    stride: int,
    groups: int = 1,
    takes: str = "matmul",
    scale: float = 0.2,
) -> Family:
    """Padded by half a window, with a bias and a rectifier; scale: of the weights, which from 8 on
    are integers of 8 bits.
    """
    weight, bias, pad = (
        _constant(out, channels // groups, kernel, kernel, scale=scale),
        _constant(1, out, 1, 1),
        kernel // 2,
    )
    weight = np.clip(np.rint(weight), -128, 127) if scale >= 8 else weight

    def graph(builder: Any, x: Any) -> Any:
        y = op.nn.conv2d(x, relax.const(weight), stride, [pad] * 4, 1, groups)
        return op.nn.relu(op.add(y, relax.const(bias)))

    def edges(unit: VectorUnit) -> tuple[int, ...]:
        return (kernel, stride * 4, stride * register_tile(unit)[0])

    return Family(
        takes,
        graph,
        {"x": (("n", channels, "h", "w"), "float32")},
        {"n": Dim(3, _none), "h": Dim(29, edges), "w": Dim(29, edges)},
        lambda x: np.maximum(
            references.convolution(x, weight, (stride, stride), [pad] * 4, groups=groups) + bias, 0
        ),
    )


def attention(depth: int, width: int) -> Family:
    """Heads split from one axis, a scale and an added mask, heads joined again."""

    def heads(builder: Any, x: Any, size: int) -> Any:
        b, s, joined = x.ty.shape.values
        split = builder.emit(op.reshape(x, relax.ShapeExpr([b, s, int(joined) // size, size])))
        return builder.emit(op.permute_dims(split, [0, 2, 1, 3]))

    def graph(builder: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
        q, k, v = (heads(builder, x, size) for x, size in ((q, depth), (k, depth), (v, width)))
        scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 1, 3, 2]))))
        scores = builder.emit(op.add(builder.emit(op.multiply(scores, relax.const(0.25))), mask))
        weighed = builder.emit(op.matmul(builder.emit(op.nn.softmax(scores)), v))
        return op.permute_dims(weighed, [0, 2, 1, 3])

    def exact(q: Array, k: Array, v: Array, mask: Array) -> Array:
        q, k, v = (
            x.reshape(*x.shape[:2], -1, size).transpose(0, 2, 1, 3)
            for x, size in ((q, depth), (k, depth), (v, width))
        )
        return references.attention(q, k, v, lambda scores: scores * 0.25 + mask).transpose(
            0, 2, 1, 3
        )

    return Family(
        "attention",
        graph,
        {
            "q": (("b", "m", 3 * depth), "float32"),
            "k": (("b", "n", 3 * depth), "float32"),
            "v": (("b", "n", 3 * width), "float32"),
            "mask": (("b", 1, 1, "n"), "float32"),
        },
        {
            "b": Dim(3, _none),
            "m": Dim(
                131,
                lambda unit: (
                    attention_plan.ROWS,
                    attention_plan.DECODE_QUERIES,
                    attention_plan.TASK_ROWS,
                ),
            ),
            "n": Dim(131, _columns),
        },
        exact,
    )


def matmul_of_inputs(depth: int = 67, edges: tuple[int, ...] = ()) -> Family:
    """Both sides computed at run time, a scale and a mask behind the sum; depth: the longest, edges
    as of `Dim`.
    """
    return Family(
        "matmul_dynamic",
        lambda builder, x, y, mask: op.add(op.multiply(op.matmul(x, y), relax.const(0.5)), mask),
        {
            "x": (("b", 2, "m", "k"), "float32"),
            "y": (("b", 2, "k", "n"), "float32"),
            "mask": (("b", 1, 1, "n"), "float32"),
        },
        {
            "b": Dim(3, _none),
            "m": Dim(67, lambda unit: (4, 8), least=0),
            "k": Dim(depth, lambda unit: edges, least=0),
            "n": Dim(97, _columns, least=0),
        },
        lambda x, y, mask: x @ y * 0.5 + mask,
    )


def pooling(name: str) -> Family:
    """Windows of 3x3 with padding, channels last."""
    pool, fill = {"max": (op.nn.max_pool2d, -np.inf), "average": (op.nn.avg_pool2d, 0.0)}[name]
    stride = {"max": 2, "average": 1}[name]
    reduced: Any = {"max": np.max, "average": np.mean}[name]

    def graph(builder: Any, x: Any) -> Any:
        more = {"count_include_pad": True} if name == "average" else {}
        return pool(x, (3, 3), (stride, stride), (1, 1, 1, 1), layout="NHWC", **more)

    def edges(unit: VectorUnit) -> tuple[int, ...]:
        return (3, stride * pooling_plan.COLUMNS, 2 * stride * pooling_plan.COLUMNS)

    return Family(
        "pooling",
        graph,
        {"x": (("n", "h", "w", 20), "float32")},
        {"n": Dim(3, _none), "h": Dim(29, edges), "w": Dim(29, edges)},
        lambda x: reduced(references.windows(x, 3, stride, 1, fill), axis=(4, 5)),
    )


def recurrence(kind: str, hidden: int) -> Family:
    """All outputs of a layer of known size, from states that are given."""
    gates, blocks = {"LSTM": 4, "GRU": 3}[kind], -(-hidden // LANES)
    cell = Cell(kind, (tirx.sigmoid, tirx.tanh, tirx.tanh)[: 3 if kind == "LSTM" else 2])
    weights = _constant(hidden, gates, hidden, scale=hidden**-0.5)
    padded = np.zeros((hidden, gates, blocks * LANES), "float32")
    padded[..., :hidden] = weights
    packed = np.ascontiguousarray(
        padded.reshape(hidden, gates, blocks, LANES).transpose(2, 1, 0, 3)
    )
    states = ("h", "c")[: 2 if kind == "LSTM" else 1]

    def graph(builder: Any, x: Any, *initial: Any) -> Any:
        steps, batch, units = x.ty.shape.values[0], x.ty.shape.values[1], blocks * LANES * gates
        program = Recurrence(
            cell, tirx.IntImm("int64", hidden), tirx.IntImm("int64", blocks), False, False, False
        )
        flat = builder.emit(op.reshape(x, relax.ShapeExpr([steps, batch, units])))
        types = [
            relax.TensorType(shape, "float32")
            for shape in ((steps, batch, hidden), *[(batch, hidden)] * len(states))
        ]
        call = relax.call_tir(
            builder.add_func(emit_recurrence(program), kind.lower()),
            [flat, relax.const(packed), *initial],
            types,
        )
        return builder.emit(relax.TupleGetItem(builder.emit(call), 0))

    recurrent: Any = {"LSTM": references.lstm, "GRU": references.gru}[kind]

    def exact(x: Array, *initial: Array) -> Array:
        gathered = np.moveaxis(x, 3, 2).reshape(*x.shape[:2], gates, -1)[..., :hidden]
        return recurrent(gathered, weights, *initial)

    return Family(
        None,
        graph,
        {
            "x": (("s", "b", blocks, gates, LANES), "float32"),
            **dict.fromkeys(states, (("b", hidden), "float32")),
        },
        {"s": Dim(13, _none), "b": Dim(29, lambda unit: (3, 4, 24))},
        exact,
    )


FAMILIES: dict[str, Family] = {
    "product": matmul(64, 72),
    "product in passes": matmul(2100, 24),
    "product of one panel": matmul(30, 10),
    "product of wide panels": matmul(70, 128),
    "quantized matmul": quantized_matmul(37, 45),
    "quantized matmul less a zero point": quantized_matmul(66, 30, 131),
    "numbers of 4 bits": blockwise(4, 16, 75, 45),
    "numbers of 8 bits": blockwise(8, 32, 64, 30),
    "codes of 4 bits": blockwise(4, 16, 64, 45, codes=True),
    "quantized convolution": quantized_convolution(10, 20, 3, 2, 77),
    "convolution": convolution(16, 20, 3, 2),
    "convolution to many channels": convolution(16, 64, 3, 2),
    "convolution of few channels": convolution(3, 56, 5, 1),
    "convolution of many channels": convolution(230, 24, 3, 2),
    "convolution of single points": convolution(24, 40, 1, 1),
    "convolution by bytes": convolution(16, 20, 3, 2, scale=40),
    "convolution of single points by bytes": convolution(24, 40, 1, 1, scale=40),
    "convolution in groups by bytes": convolution(16, 24, 3, 1, 4, "grouped_conv", scale=40),
    "winograd": convolution(96, 48, 3, 1, takes="winograd"),
    "attention": attention(32, 32),
    "attention of odd heads": attention(24, 40),
    "both computed": matmul_of_inputs(),
    "both computed, long sums": matmul_of_inputs(3 * CHUNK + 1, (CHUNK, 2 * CHUNK)),
    "depthwise convolution": convolution(24, 24, 3, 1, groups=24, takes="pooling"),
    "depthwise convolution in steps": convolution(13, 13, 3, 2, groups=13, takes="pooling"),
    "convolution in groups": convolution(16, 24, 3, 1, groups=4, takes="grouped_conv"),
    "convolution in groups of a long window": convolution(24, 24, 5, 1, 2, "grouped_conv"),
    "convolution in groups of many channels": convolution(420, 40, 3, 2, 2, "grouped_conv"),
    "convolution to one channel": convolution(11, 1, 3, 1, takes="single_conv"),
    "convolution to one channel in steps": convolution(16, 1, 5, 2, takes="single_conv"),
    "max pool": pooling("max"),
    "average pool": pooling("average"),
    "lstm": recurrence("LSTM", 44),
    "gru": recurrence("GRU", 40),
    **GENERIC,
}


def combine(
    names: Sequence[str],
) -> tuple[Callable[..., Any], dict[str, tuple[tuple[Any, ...], str]]]:
    """A graph of several families beside each other, each with inputs and dims of its own, as one
    tuple of results.
    """
    inputs: dict[str, tuple[tuple[Any, ...], str]] = {}
    for index, name in enumerate(names):
        for tensor, (shape, dtype) in FAMILIES[name].inputs.items():
            inputs[f"{tensor}{index}"] = (
                tuple(f"{axis}{index}" if isinstance(axis, str) else axis for axis in shape),
                dtype,
            )

    def graph(builder: Any, *tensors: Any) -> Any:
        rest, results = iter(tensors), []
        for name in names:
            family = FAMILIES[name]
            results.append(builder.emit(family.graph(builder, *islice(rest, len(family.inputs)))))
        return relax.Tuple(results)

    return graph, inputs
