from typing import Any

import pytest
import tvm
from tvm import te, tirx

from compiler.passes.cpu.shared.reduction import read_anchored
from compiler.tir.stages import Program, read_program


def sums_then(later: Any) -> Program:
    """[n, m] as the sums of [n, m, k], and `later` of them."""
    n, m, k = (te.var(name, "int64") for name in "nmk")
    x = te.placeholder((n, m, k), "float32", "x")
    over = te.reduce_axis((0, k), "over")
    sums = te.compute((n, m), lambda i, j: te.sum(x[i, j, over], axis=over), "sums")
    program = read_program(te.create_prim_func([x, later(sums, n, m)]))
    assert program is not None
    return program


def padded(sums: Any, n: Any, m: Any) -> Any:
    return te.compute(
        (n, m + 1),
        lambda i, j: tirx.if_then_else(j < m, sums[i, j], tirx.const(0, "float32")),
        "padded",
    )


@pytest.mark.parametrize(
    "later",
    [
        padded,
        lambda sums, n, m: te.compute((n, 3), lambda i, j: sums[i, j]),
        lambda sums, n, m: te.compute((m, n), lambda i, j: sums[i, j]),
    ],
    ids=["padded", "first columns", "extents in another order"],
)
def test_a_stage_of_other_extents_is_not_at_the_same_place(later: Any) -> None:
    assert read_anchored(sums_then(later)) is None


def test_a_stage_of_the_same_extents_is() -> None:
    anchored = read_anchored(
        sums_then(lambda sums, n, m: te.compute((m, n), lambda j, i: tvm.te.exp(sums[i, j])))
    )
    assert anchored is not None
    assert len(anchored.epilogue.outputs) == 1
