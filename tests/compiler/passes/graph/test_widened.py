"""Programs that widen 16-bit floats are recognised, and fused attention reads through them."""

from typing import Any

import pytest
from tvm import relax, te

from compiler.passes.graph.fuse_attention import FuseAttention
from compiler.passes.graph.widened import read_widened
from compiler.tir.exprs import op_name
from tests.compiler.conftest import build_module

op = relax.op


def read(compute: Any, dtype: str) -> Any:
    """What is found of a program of one tensor [n, 4], and the tensor."""
    module = build_module(
        lambda b, x: b.emit(b.call_te(lambda data: te.compute(data.shape, compute(data)), x)),
        {"x": (("n", 4), dtype)},
    )
    main = module["main"]
    return read_widened(module, main.body.blocks[0].bindings[0].value), main.params[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cast_of_every_element(dtype: str) -> None:
    found, x = read(lambda data: lambda i, j: data(i, j).astype("float32"), dtype)
    assert found.same_as(x)


@pytest.mark.parametrize(
    ("compute", "dtype"),
    [
        (lambda data: lambda i, j: data(i, j).astype("float64"), "float16"),
        (lambda data: lambda i, j: data(i, 3 - j).astype("float32"), "float16"),
        (lambda data: lambda i, j: (data(i, j) + data(i, j)).astype("float32"), "float16"),
        (lambda data: lambda i, j: data(i, j).astype("float32"), "int8"),
        (lambda data: lambda i, j: data(i, j), "float16"),
    ],
    ids=["another dtype", "another order", "a sum", "integers", "no cast"],
)
def test_other_programs(compute: Any, dtype: str) -> None:
    assert read(compute, dtype)[0] is None


def attend(b: Any, q: Any, k: Any, v: Any) -> Any:
    """Attention over keys and values that programs widen."""

    def wide(x: Any) -> Any:
        def compute(data: Any) -> Any:
            return te.compute(data.shape, lambda *at: data(*at).astype("float32"), name="widened")

        return b.emit(b.call_te(compute, x))

    scores = b.emit(op.matmul(q, b.emit(op.permute_dims(wide(k), [0, 2, 1]))))
    return b.emit(op.matmul(b.emit(op.nn.softmax(scores, -1)), wide(v)))


def test_attention_reads_keys_and_values_in_16_bits() -> None:
    inputs = {
        "q": (("b", "m", 16), "float32"),
        "k": (("b", "n", 16), "float16"),
        "v": (("b", "n", 16), "bfloat16"),
    }
    after = relax.transform.DeadCodeElimination()(
        FuseAttention().apply(build_module(attend, inputs))
    )
    (program,) = [f for g, f in after.functions.items() if g.name_hint == "attention"]
    dtypes = [str(param.ty.dtype) for param in program.params if hasattr(param.ty, "shape")]
    assert dtypes == ["float32", "float16", "bfloat16", "float32"]
    bound = [binding.value for binding in after["main"].body.blocks[0].bindings]
    (call,) = [value for value in bound if op_name(value) == "relax.call_tir"]
    given = list(call.args[1].fields)
    assert all(one.same_as(param) for one, param in zip(given, after["main"].params, strict=False))
