"""Programs that give rows of 16-bit floats or of bytes as float32 are recognised, and fused
attention reads through them.
"""

from typing import Any

import pytest
from tvm import relax, te

from compiler.passes.fusion.fuse_attention import FuseAttention
from compiler.passes.match.widened_rows import read_widened
from compiler.tir import byte_rows
from compiler.tir.exprs import op_name
from tests.compiler.conftest import build_module

op = relax.op


def read(compute: Any, dtype: str) -> Any:
    """The match of a program of one tensor [n, 4], and the tensor."""
    module = build_module(
        lambda b, x: b.emit(b.call_te(lambda data: te.compute(data.shape, compute(data)), x)),
        {"x": (("n", 4), dtype)},
    )
    main = module["main"]
    return read_widened(module, main.body.blocks[0].bindings[0].value), main.params[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cast_of_every_element(dtype: str) -> None:
    source, x = read(lambda data: lambda i, j: data(i, j).astype("float32"), dtype)
    assert source.same_as(x)


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


def rows(data: Any, moved: Any = lambda position: position, row: Any = lambda i: i) -> Any:
    """The numbers of [n, size] in rows of bytes, whose scales are read at positions `moved` of a
    `row`.
    """
    size = byte_rows.size_of(data.shape)

    def compute(i: Any, j: Any) -> Any:
        def read(position: Any) -> Any:
            return data(i, position) if position.same_as(j) else data(row(i), moved(position))

        return byte_rows.real(read, j, size)

    return te.compute((data.shape[0], size), compute, name="widened")


def read_rows(compute: Any, width: Any = 20) -> Any:
    """The match of a program of one tensor int8 [n, width], and the tensor."""
    inputs = {"x": (("n", width), "int8")}
    module = build_module(lambda b, x: b.emit(b.call_te(compute, x)), inputs)
    main = module["main"]
    return read_widened(module, main.body.blocks[0].bindings[0].value), main.params[0]


def test_the_numbers_of_rows_of_bytes() -> None:
    source, x = read_rows(rows)
    assert source.same_as(x)


@pytest.mark.parametrize(
    "compute",
    [
        lambda data: rows(data, moved=lambda position: position - 1),
        lambda data: rows(data, row=lambda i: 0 * i),
        lambda data: te.compute(
            (data.shape[0], 15), lambda i, j: byte_rows.real(lambda byte: data(i, byte), j, 16)
        ),
        lambda data: te.compute(
            (data.shape[0], 15), lambda i, j: byte_rows.real(lambda byte: data(i, byte), j, 15)
        ),
        lambda data: te.compute(
            (data.shape[0], 16),
            lambda i, j: byte_rows.real(lambda byte: data(i, byte), 15 - j, 16),
        ),
    ],
    ids=["elsewhere", "of another row", "a part of rows", "shorter rows", "another order"],
)
def test_other_programs_of_bytes(compute: Any) -> None:
    assert read_rows(compute)[0] is None


def attend(b: Any, q: Any, k: Any, v: Any) -> Any:
    """Attention over keys and values that programs widen."""

    def wide(x: Any) -> Any:
        def compute(data: Any) -> Any:
            if str(data.dtype) == "int8":
                size = byte_rows.size_of(data.shape)
                return te.compute(
                    (*data.shape[:-1], size),
                    lambda *i: byte_rows.real(lambda j: data(*i[:-1], j), i[-1], size),
                    name="widened",
                )
            return te.compute(data.shape, lambda *i: data(*i).astype("float32"), name="widened")

        return b.emit(b.call_te(compute, x))

    scores = b.emit(op.matmul(q, b.emit(op.permute_dims(wide(k), [0, 2, 1]))))
    return b.emit(op.matmul(b.emit(op.nn.softmax(scores, -1)), wide(v)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ((16, "float16"), (16, "bfloat16")),
        ((20, "int8"), (20, "int8")),
        ((20, "int8"), (16, "float16")),
    ],
)
def test_attention_reads_keys_and_values_in_fewer_bits(
    key: tuple[int, str], value: tuple[int, str]
) -> None:
    inputs = {
        "q": (("b", "m", 16), "float32"),
        "k": (("b", "n", key[0]), key[1]),
        "v": (("b", "n", value[0]), value[1]),
    }
    after = relax.transform.DeadCodeElimination()(
        FuseAttention().apply(build_module(attend, inputs))
    )
    (program,) = [f for g, f in after.functions.items() if g.name_hint == "attention"]
    dtypes = [str(param.ty.dtype) for param in program.params if hasattr(param.ty, "shape")]
    assert dtypes == ["float32", key[1], value[1], "float32"]
    bound = [binding.value for binding in after["main"].body.blocks[0].bindings]
    (call,) = [value for value in bound if op_name(value) == "relax.call_tir"]
    fields = list(call.args[1].fields)
    assert all(one.same_as(param) for one, param in zip(fields, after["main"].params, strict=False))
