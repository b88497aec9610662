"""Small graphs and tensor programs for the tests of grids."""

import sys
from typing import Any

import numpy as np

sys.modules.setdefault("torch", None)

import tvm  # noqa: E402
from tvm import relax, te, tirx  # noqa: E402

from compiler import targets  # noqa: E402

CUDA = tvm.target.Target(
    {"kind": "cuda", "arch": "sm_80", "max_num_threads": 1024}, {"kind": "llvm"}
)


def target_of(name: str) -> tvm.target.Target:
    return tvm.target.Target(targets.resolve(name).to_tvm())


def twice() -> tirx.PrimFunc:
    """y[n] = 2 x[n]."""
    n = tirx.Var("n", "int64")
    x = te.placeholder((n,), "float32", name="x")
    return te.create_prim_func(
        [x, te.compute((n,), lambda i: x[i] * tirx.const(2, "float32"), name="y")]
    )


def matmul(depth: int = 32, columns: int = 24) -> tirx.PrimFunc:
    """[n, depth] by [columns, depth] to [n, columns]."""
    n, k_extent, width = (
        tirx.Var("n", "int64"),
        tirx.IntImm("int64", depth),
        tirx.IntImm("int64", columns),
    )
    x, w = (
        te.placeholder((n, k_extent), "float32", name="x"),
        te.placeholder((width, k_extent), "float32", name="w"),
    )
    k = te.reduce_axis((tirx.IntImm("int64", 0), k_extent), name="k")
    return te.create_prim_func(
        [x, w, te.compute((n, width), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")]
    )


def feed_forward(width: int = 16, hidden: int = 24) -> tuple[tvm.IRModule, Any]:
    """A residual block over x[batch, seq, width] as a graph, and as a function of numpy arrays."""
    draw = np.random.default_rng(0)
    first, second = (
        draw.standard_normal(shape).astype("float32")
        for shape in ((width, hidden), (hidden, width))
    )
    bias = draw.standard_normal(hidden).astype("float32")
    batch, seq = tirx.Var("batch", "int64"), tirx.Var("seq", "int64")
    x = relax.Var("x", relax.TensorType((batch, seq, width), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            inner = builder.emit(
                relax.op.add(
                    builder.emit(relax.op.matmul(x, relax.const(first))), relax.const(bias)
                )
            )
            active = builder.emit(relax.op.nn.relu(inner))
            outer = builder.emit(
                relax.op.add(builder.emit(relax.op.matmul(active, relax.const(second))), x)
            )
            result = builder.emit_output(relax.op.nn.softmax(outer))
        builder.emit_func_output(result)

    def expected(values: np.ndarray) -> np.ndarray:
        scores = np.maximum(values @ first + bias, 0) @ second + values
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    module = builder.get()
    module["main"] = module["main"].with_attr("tir_var_upper_bound", {"batch": 4, "seq": 16})
    return module, expected


def gather(rows: int = 10, width: int = 4) -> tuple[tvm.IRModule, Any]:
    """Rows of a table by int64 indices, and the indices plus one."""
    table = np.random.default_rng(0).standard_normal((rows, width)).astype("float32")
    n = tirx.Var("n", "int64")
    index = relax.Var("index", relax.TensorType((n,), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [index]):
        with builder.dataflow():
            rows_taken = builder.emit(relax.op.take(relax.const(table), index, axis=0))
            after = builder.emit(relax.op.subtract(index, relax.const(3, "int64")))
            result = builder.emit_output(relax.Tuple([rows_taken, after]))
        builder.emit_func_output(result)
    return builder.get(), lambda index: (table[index], index - 3)
