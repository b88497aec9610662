from typing import Any

import pytest
import tvm
from tvm import te, tirx

from compiler.passes.cpu.shared.reduction import read_anchored
from compiler.tir.stages import Program, read_program


def reduce_then(later: Any) -> Program:
    """[n, m] as the sums of [n, m, k], and `later` of them."""
    n, m, k = (te.var(name, "int64") for name in "nmk")
    x = te.placeholder((n, m, k), "float32", "x")
    over = te.reduce_axis((0, k), "over")
    totals = te.compute((n, m), lambda i, j: te.sum(x[i, j, over], axis=over), "sums")
    program = read_program(te.create_prim_func([x, later(totals, n, m)]))
    assert program is not None
    return program


def pad(totals: Any, n: Any, m: Any) -> Any:
    return te.compute(
        (n, m + 1),
        lambda i, j: tirx.if_then_else(j < m, totals[i, j], tirx.const(0, "float32")),
        "padded",
    )


@pytest.mark.parametrize(
    "later",
    [
        pad,
        lambda totals, n, m: te.compute((n, 3), lambda i, j: totals[i, j]),
        lambda totals, n, m: te.compute((m, n), lambda i, j: totals[i, j]),
    ],
    ids=["padded", "first columns", "extents in another order"],
)
def test_a_stage_of_other_extents_is_not_at_the_same_position(later: Any) -> None:
    assert read_anchored(reduce_then(later)) is None


def test_a_stage_of_the_same_extents_is() -> None:
    anchored = read_anchored(
        reduce_then(lambda totals, n, m: te.compute((m, n), lambda j, i: tvm.te.exp(totals[i, j])))
    )
    assert anchored is not None
    assert len(anchored.epilogue.outputs) == 1
