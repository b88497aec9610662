"""Sums over a window that is read where it lies, times weights in panels: what convolutions and
integer products have in common.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tvm

from compiler.passes.cpu.shared.reduction import Epilogue, read_anchored
from compiler.passes.cpu.shared.sharing import extents_of, place_of, with_extents
from compiler.tir.exprs import Expr, Table, const, fixed, loads, substitute
from compiler.tir.flat import stride
from compiler.tir.loops import Stmt, bind_all, bind_opaque, bind_opaque_all, product, seq, serial
from compiler.tir.stages import Axis, Program


@dataclass(frozen=True)
class PanelSums:
    """epilogue(sum over `window` and `along` of source[place + window + along] * weights) for
    `rows` x `column`.

    place: the flat offset of the window's first element for a place of the result; steps: by how
    much each axis of the window moves it; weights: a flat buffer of shape `packed`.
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

    def at(self, row: Expr, body: Callable[[Table], Stmt]) -> Stmt:
        """body(where each axis of the rows stands at row number `row`)."""
        return bind_all(place_of(self.rows, row), body)

    def over_window(
        self,
        body: Callable[[Expr, Expr], Stmt],
        count: Callable[[Expr], Expr] = lambda extent: extent,
    ) -> Stmt:
        """body(position in the window, how far that is from its first element) for all of them;
        `count` of an extent is looped over.
        """

        def at(table: Table) -> Stmt:
            position, moved = const(0), const(0)
            for axis, step in zip(self.window, self.steps, strict=True):
                position, moved = (
                    position * axis.extent + table[axis.var],
                    moved + table[axis.var] * step,
                )
            return body(position, moved)

        return nest(tuple(replace(axis, extent=count(axis.extent)) for axis in self.window), at)


def read_panel_sums(program: Program, name: str) -> PanelSums | None:
    """The program whose first stage has that name, with whatever was fused behind it; None for
    another.
    """
    if program.stages[0].name != name:
        return None
    anchored = read_anchored(program)
    if anchored is None or not isinstance(anchored.combine.term.a, tvm.ir.TensorLoad):
        return None
    *rows, column = anchored.anchor.spatial
    *window, along = anchored.anchor.reduced
    if not anchored.epilogue.in_vectors(column.var):
        return None
    data, weights = anchored.combine.term.a, loads(anchored.combine.term.b)[0].source
    analyzer, flat = tvm.sym.Analyzer(), anchored.flat
    first = {column.var: const(0), along.var: const(0)}
    at = flat.offset(data.source, [substitute(index, first) for index in data.indices], analyzer)
    return PanelSums(
        tuple(rows),
        column,
        tuple(window),
        along,
        flat.views[data.source],
        analyzer.simplify(substitute(at, {axis.var: const(0) for axis in window})),
        tuple(stride(at, axis.var) for axis in window),
        flat.views[weights],
        tuple(map(fixed, weights.shape)),
        anchored.epilogue,
        tuple(flat.prelude),
    )


def emit_panel_sums(sums: PanelSums, body: Callable[[PanelSums, Expr], Stmt]) -> Stmt:
    """body(the same with extents and steps computed once, how many rows there are)."""

    def with_steps(rows: tuple[Axis, ...]) -> Stmt:
        return bind_opaque_all(
            "step",
            sums.steps,
            lambda steps: with_rows(replace(sums, rows=rows, steps=tuple(steps))),
        )

    def with_rows(known: PanelSums) -> Stmt:
        return bind_opaque("m", product(extents_of(known.rows)), lambda m: body(known, m))

    return seq(*sums.prelude, with_extents(sums.rows, with_steps))


def nest(axes: tuple[Axis, ...], body: Callable[[Table], Stmt], bound: Table | None = None) -> Stmt:
    """Serial loops over `axes`; `body` gets the value of each axis' variable."""
    values = bound or {}
    if not axes:
        return body(values)
    first, rest = axes[0], axes[1:]
    return serial(
        first.extent, lambda i: nest(rest, body, {**values, first.var: i}), first.var.name
    )
