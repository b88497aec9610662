"""The places of a result as tasks: extents computed once, every axis from the number of a place,
tasks shared out among threads.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from compiler.tir import building
from compiler.tir.building import let_all, let_opaque
from compiler.tir.exprs import Expr, Table
from compiler.tir.loops import Stmt, bind_all, bind_opaque_all, product, share_out, unfuse
from compiler.tir.stages import Axis


def extents_of(axes: Sequence[Axis]) -> list[Expr]:
    """Of each axis, in order."""
    return [axis.extent for axis in axes]


def computed_once(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes with their extents in variables: LLVM takes long over the divisions in them."""
    return tuple(replace(axis, extent=let_opaque("extent", axis.extent)) for axis in axes)


def share_places(
    axes: Sequence[Axis], parts: Expr, worth: Expr | bool
) -> Iterator[tuple[Table, Expr]]:
    """(place, part) for every place of the axes and every part below `parts`: one task each, in
    parallel if `worth` holds.
    """
    extents = [*extents_of(axes), parts]
    for task in building.share_out(product(extents), worth):
        *place, part = unfuse(task, extents)
        yield let_all(dict(zip([axis.var for axis in axes], place, strict=True))), part


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
