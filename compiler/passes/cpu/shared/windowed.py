"""Convolutions that read their window in place and weights in panels, grouped or of int8."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.reduction import Epilogue, read_anchored
from compiler.passes.cpu.shared.sharing import bind_extents, extents_of, position_of
from compiler.tir.building import emit, let_all, let_opaque, nest
from compiler.tir.exprs import Expr, Table, as_int, const, dtype_of, loads, require_int, substitute
from compiler.tir.flat import stride
from compiler.tir.loops import Stmt, multiply_extents
from compiler.tir.stages import Axis, Program


@dataclass(frozen=True)
class PanelConv:
    """epilogue(sum over `window` and `along` of source[origin + window + along] * weights) for
    `rows` x `column`.

    origin: the flat offset of the window's first element for a position of the result; steps: the
    stride of each axis of the window; weights: a flat buffer of shape `packed`. Without axes in
    `window` this is a matmul. zero: the zero point of an integer source, None of floats.
    """

    rows: tuple[Axis, ...]
    column: Axis
    window: tuple[Axis, ...]
    along: Axis
    source: Any
    origin: Expr
    steps: tuple[Expr, ...]
    weights: Any
    packed: tuple[int, ...]
    epilogue: Epilogue
    prelude: tuple[Stmt, ...]
    zero: int | None = None

    def emit_position(self, row: Expr) -> Table:
        """Emit variables for the index along each axis of the rows of row number `row`."""
        return let_all(position_of(self.rows, row))

    def over_window(
        self, count: Callable[[Expr], Expr] = lambda extent: extent
    ) -> Iterator[tuple[Expr, Expr]]:
        """(position in the window, offset from its first element) of all positions; loops run to
        `count` of an extent.
        """
        for indices in nest([replace(axis, extent=count(axis.extent)) for axis in self.window]):
            yield self.within_window(indices)

    def within_window(self, indices: Table) -> tuple[Expr, Expr]:
        """(position in the window, offset from its first element) of indices along its axes."""
        position, offset = const(0), const(0)
        for axis, step in zip(self.window, self.steps, strict=True):
            position = position * axis.extent + indices[axis.var]
            offset = offset + indices[axis.var] * step
        return position, offset


def read_panel_conv(program: Program) -> PanelConv | None:
    """The program as a `PanelConv`, None where its epilogue cannot be computed in vectors of
    columns.
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
        origin=analyzer.simplify(substitute(offset, {axis.var: const(0) for axis in window})),
        steps=tuple(stride(offset, axis.var) for axis in window),
        weights=anchored.flat.views[weights],
        packed=tuple(map(require_int, weights.shape)),
        epilogue=anchored.epilogue.over(rows),
        prelude=tuple(anchored.flat.prelude),
        zero=zero,
    )


def _left_of(term: Expr) -> tuple[Any, int | None] | None:
    """The load of a term, and the zero point that it subtracts from an integer; None for another
    term.
    """
    if isinstance(term, tvm.ir.TensorLoad):
        return term, None
    reads = loads(term)
    if len(reads) != 1 or not isinstance(term, prim.Cast) or dtype_of(term.value) != "int32":
        return None
    zero = as_int(tvm.sym.Analyzer().simplify(reads[0].astype("int32") - term.value))
    return None if zero is None else (reads[0], zero)


def begin(conv: PanelConv) -> tuple[PanelConv, Expr]:
    """Emit declarations and everything that is computed once; return the convolution in terms of
    that, and the number of rows.
    """
    for stmt in conv.prelude:
        emit(stmt)
    # Extents of results are divisions by strides, and steps are multiplications of dims.
    rows = bind_extents(conv.rows)
    steps = tuple(let_opaque("step", step) for step in conv.steps)
    return replace(conv, rows=rows, steps=steps), let_opaque(
        "m", multiply_extents(extents_of(rows))
    )
