"""The places of a result as tasks: extents computed once, every axis from the number of a place,
tasks shared out among threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from compiler.tir.exprs import Expr, Table
from compiler.tir.loops import Stmt, bind_all, bind_opaque_all, product, share_out, unfuse
from compiler.tir.stages import Axis


def extents_of(axes: Sequence[Axis]) -> list[Expr]:
    """Of each axis, in order."""
    return [axis.extent for axis in axes]


def with_extents(axes: Sequence[Axis], body: Callable[[tuple[Axis, ...]], Stmt]) -> Stmt:
    """body(the axes, their extents computed once): LLVM takes long over the divisions in them."""
    return bind_opaque_all(
        "extent",
        extents_of(axes),
        lambda known: body(
            tuple(replace(axis, extent=e) for axis, e in zip(axes, known, strict=True))
        ),
    )


def place_of(axes: Sequence[Axis], index: Expr) -> Table:
    """Where each axis stands at place number `index`, the last axis counting fastest."""
    return dict(zip([axis.var for axis in axes], unfuse(index, extents_of(axes)), strict=True))


def share_parts(
    axes: Sequence[Axis], parts: Expr, worth: Expr | bool, body: Callable[[Table, Expr], Stmt]
) -> Stmt:
    """body(place, part) for every place of the axes and every part below `parts`, over the threads
    where `worth` holds.
    """
    extents = [*extents_of(axes), parts]

    def task(index: Expr) -> Stmt:
        *place, part = unfuse(index, extents)
        return bind_all(
            dict(zip([axis.var for axis in axes], place, strict=True)), lambda at: body(at, part)
        )

    return share_out(product(extents), worth, task)
