"""Choices among tiles and panels that are known at compile time are made there."""

from typing import Any

import pytest
from tvm import tirx

from compiler import targets
from compiler.passes.cpu.shared.register_tile import (
    least,
    panel_columns,
    panel_width,
    register_tile,
)
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import emit, statements
from compiler.tir.exprs import Expr, as_int, const


@pytest.mark.parametrize(("needed", "size"), [(0, 1), (1, 1), (3, 4), (6, 6), (7, 6)])
def test_the_least_size_that_holds_what_is_needed(needed: int, size: int) -> None:
    with statements() as body:
        for rows in least((1, 2, 4, 6), const(needed)):
            emit(tirx.Evaluate(const(rows)))
    assert as_int(body.stmt.value) == size


def columns_of(panel: Expr, columns: int) -> Any:
    with statements() as body:
        for lane in panel_columns(panel, columns, 4, 1):
            emit(tirx.Evaluate(lane))
    return body.stmt


@pytest.mark.parametrize(("panel", "columns"), [(0, 4), (1, 4), (2, 3)])
def test_the_last_panel_has_the_columns_that_are_left(panel: int, columns: int) -> None:
    assert as_int(columns_of(const(panel), 11).extent) == columns


def test_columns_of_full_panels_need_no_branch() -> None:
    assert isinstance(columns_of(tirx.Var("p", "int64"), 12), tirx.For)
    assert isinstance(columns_of(tirx.Var("p", "int64"), 11), tirx.IfThenElse)


@pytest.mark.parametrize(
    ("name", "unroll", "widths"),
    [
        ("x86-64-v2", 1, (8, 12)),
        ("x86-64-v3", 4, (24, 24)),
        ("x86-64-v4", 4, (48, 48)),
        ("aarch64", 1, (12, 12)),
        ("wasm32-simd", 1, (8, 12)),
        ("wasm32-relaxed-simd", 1, (8, 12)),
    ],
)
def test_accumulators_stay_in_registers(name: str, unroll: int, widths: tuple[int, int]) -> None:
    """384 columns, which any panel divides, and 12, or 24 where vectors have eight lanes."""
    unit = VectorUnit.of(targets.resolve(name))
    assert unit.unroll == unroll
    assert (panel_width(unit, 384), panel_width(unit, 3 * unit.lanes(32))) == widths


@pytest.mark.parametrize("name", ["wasm32-simd", "wasm32-relaxed-simd", "wasm32-threads"])
def test_an_engine_keeps_a_tile_with_an_element_of_each_row_in_its_registers(name: str) -> None:
    unit = VectorUnit.of(targets.resolve(name))
    rows, columns = register_tile(unit)
    vectors = columns // unit.lanes(32)
    assert (rows, vectors) == (4, 2)
    # Accumulators, the panel's row, an element of each row, and a product; V8 takes one of sixteen.
    assert rows * vectors + vectors + rows + 1 <= 15


@pytest.mark.parametrize(
    ("columns", "width"), [(20, 32), (48, 48), (64, 64), (512, 64), (1000, 48), (2048, 48)]
)
def test_wide_vectors_leave_a_few_columns_empty_rather_than_take_thin_panels(
    columns: int, width: int
) -> None:
    assert panel_width(VectorUnit.of(targets.resolve("x86-64-v4")), columns) == width
