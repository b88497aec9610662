"""A family that declines a program names the first condition that the program does not meet."""

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te, tirx

from compiler.passes.cpu.families.attention.match import match_attention
from compiler.passes.cpu.families.family import Declined
from compiler.passes.cpu.families.matmul.match import Contraction, Matmul, match_matmul
from compiler.passes.cpu.families.matmul_dynamic.match import match_matmul_dynamic
from compiler.passes.cpu.families.winograd.match import match_winograd
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import const
from compiler.tir.stages import Program, inline_stages, read_program

UNIT = VectorUnit(vector_bits=64, registers=8, fma=True)
"""Panels of four columns."""


def tensor(name: str, *shape: int, dtype: str = "float32") -> Any:
    return te.placeholder([const(extent) for extent in shape], name=name, dtype=dtype)


def compute(shape: tuple[int, ...], value: Callable[..., Any]) -> Any:
    return te.compute([const(extent) for extent in shape], value, name="y")


def depth(extent: int) -> Any:
    return te.reduce_axis((const(0), const(extent)), name="k")


def program(tensors: list[Any]) -> Program:
    read = read_program(te.create_prim_func(tensors))
    assert read is not None
    return inline_stages(read)


def matmul(panel: int = 4, columns: int = 8, dtype: str = "float32") -> list[Any]:
    """[5, 6] by weights in panels of `panel` columns."""
    x, k = tensor("x", 5, 6, dtype=dtype), depth(6)
    w = tensor("w", -(-columns // panel), 6, panel, dtype=dtype)
    value = lambda i, j: te.sum(x[i, k] * w[j // panel, k, j % panel], axis=[k])  # noqa: E731
    return [x, w, compute((5, columns), value)]


def in_order(rows: int = 5, transposed: bool = False) -> list[Any]:
    """[rows, 6] by [6, 8], or by the transpose of [8, 6]."""
    x, k = tensor("x", rows, 6), depth(6)
    w = tensor("w", 8, 6) if transposed else tensor("w", 6, 8)
    value = lambda i, j: te.sum(x[i, k] * (w[j, k] if transposed else w[k, j]), axis=[k])  # noqa: E731
    return [x, w, compute((rows, 8), value)]


def greatest() -> list[Any]:
    x, k = tensor("x", 5, 6), depth(6)
    return [x, compute((5,), lambda i: te.max(x[i, k], axis=[k]))]


def elementwise() -> list[Any]:
    x = tensor("x", 5, 6)
    return [x, compute((5, 6), lambda i, j: tirx.max(x[i, j], tirx.const(0, "float32")))]


def test_packed_weights_are_taken() -> None:
    match = match_matmul(program(matmul()), UNIT)
    assert isinstance(match, Matmul)
    assert (match.in_place, match.depth, match.columns, match.panel_count) == (True, 6, 8, 2)


def test_two_computed_sides_are_taken() -> None:
    assert isinstance(match_matmul_dynamic(program(in_order()), UNIT), Contraction)


@pytest.mark.parametrize(
    ("match", "tensors", "reason"),
    [
        (match_matmul, elementwise(), "it is no reduction followed by elementwise stages"),
        (match_matmul, greatest(), "its reduction is no sum of multiplications"),
        (match_matmul, matmul(dtype="float64"), "its sum is not float32"),
        (match_matmul, in_order(transposed=True), "its right side is not packed in panels"),
        (
            match_matmul,
            matmul(panel=2),
            "its panels of 2 columns do not fit the vectors of this target",
        ),
        (match_matmul, matmul(columns=4), "its only panel needs no scratch memory"),
        (
            match_matmul_dynamic,
            in_order(transposed=True),
            "its right side is not contiguous along the columns",
        ),
        (match_matmul_dynamic, in_order(rows=1), "it has no rows that share its right side"),
        (match_winograd, matmul(), "it is no convolution in Winograd's form"),
        (match_attention, matmul(), "it is no fused attention"),
    ],
)
def test_reasons(
    match: Callable[[Program, VectorUnit], Any], tensors: list[Any], reason: str
) -> None:
    assert match(program(tensors), UNIT) == Declined(reason)
