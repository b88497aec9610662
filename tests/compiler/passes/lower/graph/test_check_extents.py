"""Checks of extents in front of what takes memory."""

from typing import Any

import pytest
import tvm
from tvm import relax, tirx

from compiler.ir.graph.checks import messages_of
from compiler.passes.lower.graph.check_extents import MESSAGE, CheckExtents
from compiler.tir.ranges import MOST_EXTENT
from relaxd.contract.dims.dims import Dim


def allocating(late: bool = False) -> tuple[tvm.IRModule, dict[Any, Dim]]:
    """Two tensors of n * m elements; late: and one of as many as the input says."""
    n, m, k = (tirx.Var(name, "int64") for name in "nmk")
    x = relax.Var("x", relax.TensorType([n, m], "float32"))
    count = relax.Var("count", relax.TensorType([1], "int64"))
    builder = relax.BlockBuilder()

    def allocate(extent: Any) -> Any:
        return builder.emit(
            relax.op.builtin.alloc_tensor(relax.ShapeExpr([extent]), "float32", 0, "global")
        )

    with builder.function("main", [x, count]):
        new = allocate(n * m)
        new = allocate(n * m)
        if late:
            shape = builder.emit(relax.op.tensor_to_shape(count))
            builder.match_cast(shape, relax.ShapeType([k]))
            new = allocate(k)
        builder.emit_func_output(new)
    return builder.get(), {n: Dim("n"), m: Dim("m")}


def checks(module: tvm.IRModule) -> list[int]:
    """The positions of checks among the bindings of `main`."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    return [
        position
        for position, binding in enumerate(bindings)
        if isinstance(binding, relax.MatchCast) and isinstance(binding.ty.values[0], tirx.IntImm)
    ]


def test_what_dims_decide_is_checked_once_and_first() -> None:
    module, dims = allocating()
    checked = CheckExtents(dims).apply(module)
    assert checks(checked) == [1]
    assert list(messages_of(checked).values()) == [MESSAGE]


def test_what_a_run_computes_is_checked_where_it_is_known() -> None:
    module, dims = allocating(late=True)
    assert checks(CheckExtents(dims).apply(module)) == [1, 7]


@pytest.mark.parametrize(("most", "needed"), [(1 << 22, False), (1 << 23, True)])
def test_small_tensors_need_no_check(most: int, needed: bool) -> None:
    module, dims = allocating()
    limited = {dim: Dim(declared.name, max=most) for dim, declared in dims.items()}
    assert bool(checks(CheckExtents(limited).apply(module))) is needed
    assert most < MOST_EXTENT
