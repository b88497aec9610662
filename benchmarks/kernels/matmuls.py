"""Cases of matmuls: by weights of float32, bfloat16, int8 and int4, and of two computed tensors."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from benchmarks.kernels.case import (
    RECURRENT,
    STREAMED_BYTES,
    WEIGHT_BYTES,
    Arithmetic,
    Case,
    copies_for,
    floats,
)
from compiler.ir.ops.quantized.block_matmul import KERNEL_NAMES, Blocks, real_at
from tests.compiler.passes import families
from tests.compiler.passes.cpu.families.test_attention import in_groups

op = relax.op

MATMUL = "n0_"
"""The variable of a matmul whose operands are rounded, as importers name that of a model's first
node.
"""
_SCALED = 32
"""Block-wise quantized weights that share a scale, as in most files of language models."""


def matmul(rows: int, depth: int, columns: int, total: int = WEIGHT_BYTES) -> Case:
    """Rows by constant weights, layer by layer, with a bias; total: bytes of all weights, which
    come from memory where they are more than WEIGHT_BYTES.
    """
    return _layers(rows, depth, columns, total, "")


def matmul_bfloat16(rows: int, depth: int, columns: int) -> Case:
    """The same with both sides rounded to bfloat16, whose weights take half of the bytes."""
    return _layers(rows, depth, columns, WEIGHT_BYTES, MATMUL)


def _layers(rows: int, depth: int, columns: int, total: int, name: str) -> Case:
    is_bfloat16 = bool(name)
    size = (2 if is_bfloat16 else 4) * depth * columns
    copies = copies_for(size, total, 1 << 10 if total > WEIGHT_BYTES else 8)

    # Drawn when the graph is built: the weights of all cases take gigabytes.
    def graph(builder: Any, x: Any) -> Any:
        random, layers = np.random.default_rng(0), []
        bias = relax.const(np.ones(columns, "float32"))
        for _ in range(copies):
            weight = random.standard_normal((depth, columns), "float32") * np.float32(depth**-0.5)
            call = op.matmul(x, relax.const(weight))
            result = builder.emit(call, name) if is_bfloat16 else call
            layers.append(builder.emit(op.add(result, bias)))
        return relax.Tuple(layers)

    return Case(
        "matmul",
        f"{rows}x{depth}x{columns}" + (", streamed" if total > WEIGHT_BYTES else ""),
        graph,
        {"x": (("m", depth), "float32")},
        {"m": rows},
        2 * rows * depth * columns,
        size + floats((rows, depth), (rows, columns)),
        copies,
        shared=floats((rows, depth)),
        arithmetic=Arithmetic.BFLOAT16 if is_bfloat16 else Arithmetic.FLOAT32,
        is_bfloat16=is_bfloat16,
    )


def matmul_dynamic(batch: int, rows: int, depth: int, columns: int) -> Case:
    """Two computed tensors."""
    return Case(
        "matmul_dynamic",
        f"{batch}x{rows}x{depth}x{columns}",
        lambda builder, x, y: op.matmul(x, y),
        {"x": (("b", "m", "k"), "float32"), "y": (("b", "k", "n"), "float32")},
        {"b": batch, "m": rows, "k": depth, "n": columns},
        2 * batch * rows * depth * columns,
        batch * floats((rows, depth), (depth, columns), (rows, columns)),
    )


def int8_matmul(rows: int, depth: int, columns: int) -> Case:
    """Bytes by constant bytes, accumulated in 32 bits."""
    built = families.quantized_matmul(depth, columns)
    return Case(
        "int8",
        f"{rows}x{depth}x{columns}",
        built.graph,
        built.inputs,
        {"n": rows},
        2 * rows * depth * columns,
        depth * (rows + columns) + floats((rows, columns)),
        arithmetic=Arithmetic.INT8,
    )


def block_matmul(
    rows: int, depth: int, columns: int, bits: int = 4, quantized_rows: bool = False
) -> Case:
    """Rows by block-wise quantized weights with a scale for every 32; weights of all layers
    together are larger than caches. quantized_rows: rows are quantized to 8 bits, and integers
    multiplied.
    """
    blocks = depth // _SCALED
    size = columns * (depth * bits // 8 + 4 * blocks)
    copies = copies_for(size, STREAMED_BYTES if rows == 1 else WEIGHT_BYTES, 1 << 10)
    shape = (columns, blocks, _SCALED * bits // 8)

    def tables() -> Iterator[Blocks]:
        random = np.random.default_rng(0)
        for _ in range(copies):
            numbers = random.integers(0, 256, shape, np.uint8)
            scales = random.random((columns, blocks), np.float32)
            yield Blocks(bits, _SCALED, depth, numbers, scales, None)

    def multiply(table: Blocks, x: Any, *tensors: Any) -> Any:
        k = te.reduce_axis((tirx.IntImm("int64", 0), tirx.IntImm("int64", depth)), name="k")
        return te.compute(
            (x.shape[0], tirx.IntImm("int64", columns)),
            lambda i, j: te.sum(x[i, k] * real_at(table, tensors, j, k), axis=[k]),
        )

    def graph(builder: Any, x: Any) -> Any:
        name = KERNEL_NAMES[bits, quantized_rows]
        return relax.Tuple(
            [
                builder.emit_te(
                    partial(multiply, table),
                    x,
                    *(relax.const(tensor.data) for tensor in table.tensors),
                    primfunc_name_hint=name,
                )
                for table in tables()
            ]
        )

    return Case(
        "nbits",
        f"{rows}x{depth}x{columns}, {bits} bits",
        graph,
        {"x": (("n", depth), "float32")},
        {"n": rows},
        2 * rows * depth * columns,
        size + floats((rows, depth), (rows, columns)),
        copies,
        shared=floats((rows, depth)),
        arithmetic=Arithmetic.INT8 if quantized_rows else Arithmetic.FLOAT32,
    )


def attention(depth: int, heads: int, batch: int, rows: int, keys: int) -> Case:
    """All heads of some queries over some keys, with a mask."""
    built = families.attention(depth, depth)
    shapes = {"q": ("b", "m"), "k": ("b", "n"), "v": ("b", "n")}
    inputs = {name: ((*axes, heads * depth), "float32") for name, axes in shapes.items()}
    return Case(
        "attention",
        f"{batch}x{heads} heads of {depth}, {rows} rows, {keys} keys",
        built.graph,
        inputs | {"mask": built.inputs["mask"]},
        {"b": batch, "m": rows, "n": keys},
        4 * batch * heads * rows * keys * depth,
        floats((2, batch, rows, heads, depth), (2, batch, keys, heads, depth), (batch, keys)),
    )


def grouped_attention(depth: int, heads: int, groups: int, rows: int, keys: int) -> Case:
    """Heads of which each group of neighbours reads the same keys and values."""
    inputs = {"q": (("b", heads, "m", depth), "float32")}
    inputs |= dict.fromkeys("kv", (("b", groups, "n", depth), "float32"))
    return Case(
        "attention",
        f"{heads} heads of {depth} in {groups} groups, {rows} rows, {keys} keys",
        partial(in_groups, heads=heads, groups=groups, size=depth),
        inputs,
        {"b": 1, "m": rows, "n": keys},
        4 * heads * rows * keys * depth,
        floats((2, rows, heads, depth), (2, keys, groups, depth)),
    )


def recurrence(kind: str, hidden: int, batch: int, steps: int) -> Case:
    """All steps of a layer from its gates' sums, the input's part being a matmul before it.

    A step needs the state of the one before and all weights, more than the first cache keeps.
    """
    built = families.recurrence(kind, hidden)
    gates = {"LSTM": 4, "GRU": 3}[kind]
    weights = floats((hidden, gates, hidden))
    return Case(
        RECURRENT,
        f"{kind} of {hidden}, batch {batch}, {steps} steps",
        built.graph,
        built.inputs,
        {"s": steps, "b": batch},
        2 * steps * batch * hidden * gates * hidden,
        steps * (weights + floats((batch, gates, hidden), (batch, hidden))),
        again=(steps - 1) * weights,
    )
