"""Programs around one reduction: the stage that combines, and its epilogue.

Fusion puts a bias, an activation or a residual behind a matmul or a convolution as stages of their
own. Here they become one expression of each accumulator, computed while it is in a register.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.cpu.shared.loop_nest import Combine, combine_of
from compiler.passes.cpu.shared.sharing import position_of
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import LINE
from compiler.tir.building import let_all, prefetch, store
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    bits_of,
    const,
    dtype_of,
    load,
    loads,
    replace_loads,
    substitute,
    uses,
)
from compiler.tir.flat import Flattener, flatten_stage, mergeable, stride
from compiler.tir.stages import Axis, Program, Stage


@dataclass(frozen=True)
class Output:
    """One result: `value` is stored where `target`, a flat load, reads."""

    target: Any
    value: Expr


@dataclass(frozen=True)
class Epilogue:
    """Elementwise work on each result of a reduction.

    total: a buffer of one element, which stands for the result in the values of `outputs`;
    in_order: True if all loads and stores walk the rows as if they were one axis.
    """

    total: Any
    outputs: tuple[Output, ...]
    in_order: bool = False

    def over(self, rows: Sequence[Axis]) -> "Epilogue":
        """The epilogue of a kernel that numbers these rows."""
        sides = [side for out in self.outputs for side in (out.target, out.value)]
        in_order = bool(rows) and all(mergeable(*pair, sides) for pair in pairwise(rows))
        return replace(self, in_order=in_order)

    def rows_at(self, rows: Sequence[Axis], index: Expr) -> Table:
        """Emit variables for the position of row number `index` along each axis of the rows, which
        are those of `over`; for the epilogue alone, as rows in order take no divisions.
        """
        if not self.in_order:
            return let_all(position_of(rows, index))
        *outer, last = (axis.var for axis in rows)
        return {**dict.fromkeys(outer, const(0)), **let_all({last: index})}

    def in_vectors(self, var: Any) -> bool:
        """True if neighbouring values of `var` can be computed in one vector."""
        return all(
            is_vectorizable(side, var) for out in self.outputs for side in (out.value, out.target)
        )

    def reads_beside(self, column: Any) -> list[Any]:
        """The loads beside that of the result that are contiguous along `column`."""
        return [
            read
            for out in self.outputs
            for read in loads(out.value)
            if not read.source.same_as(self.total) and as_int(stride(read.indices[0], column)) == 1
        ]

    def prefetch(self, column: Any, count: int, position: Table, level: int = 1) -> None:
        """Emit prefetches of `count` elements from a position on of what each row reads beside the
        result.
        """
        rows = [var for var in position if not var.same_as(column)]
        for read in self.reads_beside(column):
            # What all rows read is in the cache.
            if not any(uses(read.indices[0], var) for var in rows):
                continue
            first = substitute(read.indices[0], position)
            for line in range(0, count, LINE // (bits_of(dtype_of(read)) // 8)):
                prefetch(read.source, first + line, level=level)

    def prefetch_results(self, position: Table, count: int, level: int = 1) -> None:
        """Emit prefetches of the memory that `count` results from a position on are stored to."""
        for out in self.outputs:
            first = substitute(out.target.indices[0], position)
            for line in range(0, count, LINE // (bits_of(dtype_of(out.target)) // 8)):
                prefetch(out.target.source, first + line, level=level, write=True)

    def store(self, result: Expr, position: Table) -> None:
        """Emit the stores of all outputs of `result`, which is at a position of the axes."""
        for out in self.outputs:
            value = replace_loads(out.value, self.total, result, position)
            store(out.target.source, value, substitute(out.target.indices[0], position))


@dataclass(frozen=True)
class AnchoredProgram:
    """A reduction as it is in the program, its operation, and the later stages over its axes."""

    anchor: Stage
    combine: Combine
    epilogue: Epilogue
    flat: Flattener


def read_anchored(program: Program) -> AnchoredProgram | None:
    """The program as a reduction followed by elementwise stages at the same position, None if it
    is none.
    """
    anchor = _anchor(program)
    combine = None if anchor is None else combine_of(anchor)
    if anchor is None or combine is None:
        return None
    # Stands for the accumulator: `Epilogue.store` puts a register in its place.
    total = tirx.decl_buffer([const(1)], dtype_of(anchor.value), name="total", scope="local")
    later: list[Stage] = []
    for stage in program.stages[1:]:
        moved = _at_anchor(stage, anchor, total)
        if moved is None:
            return None
        later.append(moved)
    if any(anchor.buffer.same_as(out) for out in program.outputs):
        # The result itself is an output, beside those of the later stages.
        later.insert(0, replace(anchor, axes=anchor.spatial, value=load(total, [0]), init=None))
    # The value of a later stage is in memory, not in a register: only the accumulator is.
    if any(_reads(stage, other.buffer) for stage in later for other in later):
        return None
    flat = Flattener.of(program)
    # A result that is also an output has a view already; a local one is never in memory.
    flat.views[anchor.buffer] = flat.views.get(anchor.buffer, total)
    parts = [flatten_stage(stage, flat) for stage in later]
    outputs = tuple(Output(load(part.buffer, part.indices), part.value) for part in parts)
    return AnchoredProgram(anchor, combine, Epilogue(total, outputs), flat)


def _anchor(program: Program) -> Stage | None:
    """The one reduction of a program, if it is its first stage and stores without rearranging."""
    reductions = [stage for stage in program.stages if stage.init is not None]
    if len(reductions) != 1 or not program.stages[0].buffer.same_as(reductions[0].buffer):
        return None
    anchor = reductions[0]
    plain = len(anchor.indices) == len(anchor.spatial) and all(
        index.same_as(axis.var) for index, axis in zip(anchor.indices, anchor.spatial, strict=True)
    )
    return anchor if plain else None


def _reads(stage: Stage, buffer: Any) -> bool:
    return any(read.source.same_as(buffer) for read in loads(stage.value))


def _at_anchor(stage: Stage, anchor: Stage, total: Any) -> Stage | None:
    """The later stage over the anchor's axes, the anchor's result replaced by `total`; None where
    the stage has other axes or, as padding and slices have, other extents.
    """
    table = _anchor_axes(stage, anchor)
    if table is None or stage.reduced or not _reads(stage, anchor.buffer):
        return None
    if any(own.var not in table and as_int(own.extent) != 1 for own in stage.axes):
        return None
    # Two axes of the stage at one of the anchor are a diagonal.
    if len({var.__hash__() for var in table.values()}) != len(table):
        return None
    if not _same_extents(stage, anchor, table):
        return None
    # What is left has extent 1.
    table = {**{own.var: const(0) for own in stage.axes}, **table}
    return Stage(
        stage.name,
        stage.buffer,
        anchor.spatial,
        tuple(substitute(index, table) for index in stage.indices),
        replace_loads(stage.value, anchor.buffer, load(total, [0]), table),
    )


def _anchor_axes(stage: Stage, anchor: Stage) -> Table | None:
    """The anchor's axis for each axis of the stage, by the indices at which the stage reads the
    anchor's result; None where its loads have different indices, or other ones than its own.
    """
    table: Table = {}
    for read in loads(stage.value):
        if not read.source.same_as(anchor.buffer):
            continue
        for index, axis in zip(read.indices, anchor.axes, strict=False):
            own = isinstance(index, tvm.ir.Var) and any(
                index.same_as(other.var) for other in stage.axes
            )
            if own and table.setdefault(index, axis.var).same_as(axis.var):
                continue
            # A constant is an index of its own only along an axis of extent 1.
            if own or as_int(index) is None or as_int(axis.extent) != 1:
                return None
    return table


def _same_extents(stage: Stage, anchor: Stage, table: Table) -> bool:
    """True if each axis of the stage has the extent of the anchor's axis that `table` replaces it
    by.
    """
    extents, analyzer = {axis.var: axis.extent for axis in anchor.axes}, tvm.sym.Analyzer()
    return all(
        own.var not in table or analyzer.can_prove_equal(own.extent, extents[table[own.var]])
        for own in stage.axes
    )
