"""The places of a result as tasks: extents computed once, every axis from the number of a place,
tasks shared out among threads where there is enough to do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import tvm

from compiler.tir.building import let_all, let_opaque, share_out
from compiler.tir.exprs import Expr, Table, children, const
from compiler.tir.loops import multiply_extents, unfuse
from compiler.tir.stages import Axis, Stage

PARALLEL_WORK = 1 << 17
"""Operations below which starting the other threads costs more than it saves."""

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
    """Of each axis, in order."""
    return [axis.extent for axis in axes]


def computed_once(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes with their extents in variables: LLVM takes long over the divisions in them."""
    return tuple(replace(axis, extent=let_opaque("extent", axis.extent)) for axis in axes)


def place_of(axes: Sequence[Axis], index: Expr) -> Table:
    """Where each axis stands at place number `index`, the last axis counting fastest."""
    return dict(zip([axis.var for axis in axes], unfuse(index, extents_of(axes)), strict=True))


def share_places(
    axes: Sequence[Axis], parts: Expr, worth: Expr | bool
) -> Iterator[tuple[Table, Expr]]:
    """(place, part) for every place of the axes and every part below `parts`: one task each, in
    parallel if `worth` holds.
    """
    extents = [*extents_of(axes), parts]
    for task in share_out(multiply_extents(extents), worth):
        # Parts count fastest, so that neighbouring tasks of a thread share a place.
        *place, part = unfuse(task, extents)
        yield let_all(dict(zip([axis.var for axis in axes], place, strict=True))), part


def operations(expr: Expr) -> int:
    """A rough count of the machine operations of one evaluation."""
    if isinstance(expr, tvm.ir.TensorLoad):
        return 1
    # Any other call, such as a comparison or a root, counts as a few instructions.
    call = isinstance(expr, tvm.ir.Call) and hasattr(expr.op, "name")
    own = _OPERATIONS.get(expr.op.name, 4) if call else 1
    return own + sum(map(operations, children(expr)))


def worth_sharing(*stages: Stage) -> Expr:
    """Whether the operations of all the stages, over their extents, are worth other threads."""
    total: Expr = const(0)
    for stage in stages:
        each = min(operations(stage.value), MOST_OPERATIONS)
        total = total + multiply_extents(extents_of(stage.axes)) * each
    return tvm.sym.Analyzer().simplify(total) >= PARALLEL_WORK
