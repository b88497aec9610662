"""The positions of a result as tasks, shared out among threads where there is enough to do."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import tvm

from compiler.passes.cpu.shared import plan
from compiler.tir.building import let_all, let_opaque, parallel
from compiler.tir.exprs import Expr, Table, children, const
from compiler.tir.loops import multiply_extents, unfuse
from compiler.tir.stages import Axis, Stage

MOST_OPERATIONS = 200
"""Operations of one element that are counted at most."""

# Instructions of one element in the polynomials of compiler.tir.vecmath, roughly; pow and log are
# calls into the C library.
_OPERATIONS = {
    "tirx.exp": 12,
    "tirx.erf": 20,
    "tirx.tanh": 20,
    "tirx.sigmoid": 15,
    "tirx.pow": 60,
    "tirx.log": 20,
}


def extents_of(axes: Sequence[Axis]) -> list[Expr]:
    """The extents of the axes, in order."""
    return [axis.extent for axis in axes]


def bind_extents(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Emit variables for the extents of the axes: LLVM takes long over the divisions in them."""
    return tuple(replace(axis, extent=let_opaque("extent", axis.extent)) for axis in axes)


def position_of(axes: Sequence[Axis], index: Expr) -> Table:
    """The index along each axis of position number `index`; the last axis counts fastest."""
    return dict(zip([axis.var for axis in axes], unfuse(index, extents_of(axes)), strict=True))


def share_positions(
    axes: Sequence[Axis], parts: Expr, parallel_if: Expr | bool
) -> Iterator[tuple[Table, Expr]]:
    """(position, part) for every position of the axes and every part below `parts`: one task each,
    in parallel if `parallel_if` holds.
    """
    extents = [*extents_of(axes), parts]
    with parallel(multiply_extents(extents), parallel_if) as task:
        # Parts count fastest, so that neighbouring tasks of a thread share a position.
        *position, part = unfuse(task, extents)
        yield let_all(dict(zip([axis.var for axis in axes], position, strict=True))), part


def operations(expr: Expr) -> int:
    """A rough count of the machine operations of one evaluation."""
    if isinstance(expr, tvm.ir.TensorLoad):
        return 1
    # Any other call, such as a comparison or a root, counts as a few instructions.
    call = isinstance(expr, tvm.ir.Call) and hasattr(expr.op, "name")
    own = _OPERATIONS.get(expr.op.name, 4) if call else 1
    return own + sum(map(operations, children(expr)))


def is_parallel_profitable(*stages: Stage) -> Expr:
    """The condition that all stages together have enough operations for several threads."""
    total: Expr = const(0)
    for stage in stages:
        each = min(operations(stage.value), MOST_OPERATIONS)
        total = total + multiply_extents(extents_of(stage.axes)) * each
    return tvm.sym.Analyzer().simplify(total) >= plan.PARALLEL_WORK
