"""Convolutions over a window that is read where it lies, by weights in panels: what grouped
convolutions and those of small integers have in common.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.reduction import Epilogue, read_anchored
from compiler.passes.cpu.shared.sharing import computed_once, extents_of, place_of
from compiler.tir.building import emit, let_all, let_opaque, nest
from compiler.tir.exprs import Expr, Table, as_int, const, dtype_of, loads, require_int, substitute
from compiler.tir.flat import stride
from compiler.tir.loops import Stmt, multiply_extents
from compiler.tir.stages import Axis, Program


@dataclass(frozen=True)
class PanelConv:
    """epilogue(sum over `window` and `along` of source[place + window + along] * weights) for
    `rows` x `column`.

    place: the flat offset of the window's first element for a place of the result; steps: by how
    much each axis of the window moves it; weights: a flat buffer of shape `packed`. Without axes
    in `window` this is a matmul. zero: what is subtracted from an element of bytes, None where the
    source is of floats.
    """

    rows: tuple[Axis, ...]
    column: Axis
    window: tuple[Axis, ...]
    along: Axis
    source: Any
    place: Expr
    steps: tuple[Expr, ...]
    weights: Any
    packed: tuple[int, ...]
    epilogue: Epilogue
    prelude: tuple[Stmt, ...]
    zero: int | None = None

    def at(self, row: Expr) -> Table:
        """Emit variables for where each axis of the rows stands at row number `row`."""
        return let_all(place_of(self.rows, row))

    def over_window(
        self, count: Callable[[Expr], Expr] = lambda extent: extent
    ) -> Iterator[tuple[Expr, Expr]]:
        """(position in the window, how far that is from its first element) for all of them; loops
        run to `count` of an extent.
        """
        for place in nest([replace(axis, extent=count(axis.extent)) for axis in self.window]):
            yield self.within_window(place)

    def within_window(self, place: Table) -> tuple[Expr, Expr]:
        """(position in the window, how far that is from its first element) of a place."""
        position, moved = const(0), const(0)
        for axis, step in zip(self.window, self.steps, strict=True):
            position = position * axis.extent + place[axis.var]
            moved = moved + place[axis.var] * step
        return position, moved


def read_panel_conv(program: Program) -> PanelConv | None:
    """The program as such, with whatever was fused behind it; None where that cannot be computed in
    vectors of columns.
    """
    anchored = read_anchored(program)
    read = None if anchored is None else _left_of(anchored.combine.term.a)
    if anchored is None or read is None:
        return None
    *rows, column = anchored.anchor.spatial
    *window, along = anchored.anchor.reduced
    # Panels are computed in vectors, and so is what follows.
    if not anchored.epilogue.in_vectors(column.var):
        return None
    (data, zero), weights = read, loads(anchored.combine.term.b)[0].source
    # The channels of the group and of the window are added by the kernel: what is left of the
    # offset is where the window begins, linear in each of its axes.
    analyzer, first = tvm.sym.Analyzer(), {column.var: const(0), along.var: const(0)}
    indices = [substitute(index, first) for index in data.indices]
    offset = anchored.flat.offset(data.source, indices, analyzer)
    return PanelConv(
        rows=tuple(rows),
        column=column,
        window=tuple(window),
        along=along,
        source=anchored.flat.views[data.source],
        place=analyzer.simplify(substitute(offset, {axis.var: const(0) for axis in window})),
        steps=tuple(stride(offset, axis.var) for axis in window),
        weights=anchored.flat.views[weights],
        packed=tuple(map(require_int, weights.shape)),
        epilogue=anchored.epilogue.over(rows),
        prelude=tuple(anchored.flat.prelude),
        zero=zero,
    )


def _left_of(term: Expr) -> tuple[Any, int | None] | None:
    """The element that a term reads, and the number that it subtracts from an integer; None for
    another term.
    """
    if isinstance(term, tvm.ir.TensorLoad):
        return term, None
    found = loads(term)
    if len(found) != 1 or not isinstance(term, prim.Cast) or dtype_of(term.value) != "int32":
        return None
    zero = as_int(tvm.sym.Analyzer().simplify(found[0].astype("int32") - term.value))
    return None if zero is None else (found[0], zero)


def begin(conv: PanelConv) -> tuple[PanelConv, Expr]:
    """Emit declarations, and everything that is computed once: the convolution in terms of that,
    and how many rows there are.
    """
    for stmt in conv.prelude:
        emit(stmt)
    # Extents of results are divisions by strides, and steps are multiplications of dims.
    rows = computed_once(conv.rows)
    steps = tuple(let_opaque("step", step) for step in conv.steps)
    return replace(conv, rows=rows, steps=steps), let_opaque(
        "m", multiply_extents(extents_of(rows))
    )
