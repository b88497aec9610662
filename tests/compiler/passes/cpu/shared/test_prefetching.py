"""Prefetches between steps cover the panel."""

from typing import Any

import pytest
import tvm
from tvm import tirx

from compiler.passes.cpu.shared.prefetching import prefetch_between
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import statements
from compiler.tir.exprs import const

UNIT = VectorUnit(vector_bits=512, registers=32, fma=True, unroll=4)
PANEL, DEPTH, WIDTH = 640, 12, 32


@pytest.mark.parametrize(("tiles", "lines"), [(1, 8), (3, 3), (8, 1)])
def test_every_line_of_a_panel_is_prefetched(tiles: int, lines: int) -> None:
    """24 lines, between three groups of four steps of every tile."""
    weights = tirx.decl_buffer([4096], "float32")
    groups = []
    for tile in range(tiles):
        depth = const(DEPTH)
        between = prefetch_between(UNIT, weights, const(PANEL), WIDTH, depth, const(tile), tiles)
        for group in range(DEPTH // UNIT.unroll):
            with statements() as body:
                between(const(group))
            indices = prefetched_indices(body.stmt)
            assert len(indices) == lines
            groups += indices
    assert set(range(PANEL, PANEL + DEPTH * WIDTH, 16)) <= set(groups)


def prefetched_indices(stmt: Any) -> list[int]:
    """The elements whose lines are prefetched."""
    several = stmt.seq if isinstance(stmt, tirx.SeqStmt) else [stmt]
    indices = [one.value.args[0].args[0].indices[0] for one in several]
    return [int(tvm.sym.Analyzer().simplify(index)) for index in indices]
