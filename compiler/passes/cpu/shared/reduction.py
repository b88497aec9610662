"""Programs around one reduction: the stage that combines, and what is done to each of its results
afterwards.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.cpu.shared.loop_nest import Combine, combine_of, vectorizable
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    const,
    dtype_of,
    load,
    loads,
    replace_loads,
    substitute,
)
from compiler.tir.flat import Flattener, flatten_stage
from compiler.tir.loops import Stmt, seq, store
from compiler.tir.stages import Program, Stage


@dataclass(frozen=True)
class Output:
    """`value` goes to `target`, a flat load of the place."""

    target: Any
    value: Expr


@dataclass(frozen=True)
class Epilogue:
    """What is done to each result of a reduction, for which the values of `outputs` read the
    one-element buffer `total`.
    """

    total: Any
    outputs: tuple[Output, ...]

    def in_vectors(self, var: Any) -> bool:
        """Whether neighbouring values of `var` can be done in one vector."""
        return all(
            vectorizable(side, var) for out in self.outputs for side in (out.value, out.target)
        )

    def write(self, result: Expr, at: Table) -> Stmt:
        """Every output of `result`, the axes being `at`."""
        return seq(*(self._write(out, result, at) for out in self.outputs))

    def _write(self, out: Output, result: Expr, at: Table) -> Stmt:
        return store(
            out.target.source,
            replace_loads(out.value, self.total, result, at),
            substitute(out.target.indices[0], at),
        )


@dataclass(frozen=True)
class Anchored:
    """The reduction as it stands in the program, how it combines, and the later stages over its
    axes, flat.
    """

    anchor: Stage
    combine: Combine
    epilogue: Epilogue
    flat: Flattener


def _anchor(program: Program) -> Stage | None:
    found = [stage for stage in program.stages if stage.init is not None]
    if len(found) != 1 or not program.stages[0].buffer.same_as(found[0].buffer):
        return None
    anchor = found[0]
    plain = all(
        index.same_as(axis.var) for index, axis in zip(anchor.indices, anchor.spatial, strict=False)
    )
    return anchor if plain and len(anchor.indices) == len(anchor.spatial) else None


def _at_anchor(stage: Stage, anchor: Stage, total: Any) -> Stage | None:
    """The later stage over the anchor's axes, the anchor's result replaced by `total`; None where
    the stage has other axes or, as padding and slices have, other extents.
    """
    reads = [one for one in loads(stage.value) if one.source.same_as(anchor.buffer)]
    table: Table = {}
    for one in reads:
        for index, axis in zip(one.indices, anchor.axes, strict=False):
            if isinstance(index, tvm.ir.Var) and any(index.same_as(own.var) for own in stage.axes):
                if index in table and not table[index].same_as(axis.var):
                    return None
                table[index] = axis.var
            elif as_int(index) is None or as_int(axis.extent) != 1:
                return None
    if (
        not reads
        or stage.reduced
        or any(own.var not in table and as_int(own.extent) != 1 for own in stage.axes)
    ):
        return None
    if len({var.__hash__() for var in table.values()}) != len(table):
        return None
    if not _same_extents(stage, anchor, table):
        return None
    table = {**{own.var: const(0) for own in stage.axes}, **table}
    value = replace_loads(stage.value, anchor.buffer, load(total, [const(0)]), table)
    return Stage(
        stage.name,
        stage.buffer,
        anchor.spatial,
        tuple(substitute(i, table) for i in stage.indices),
        value,
    )


def _same_extents(stage: Stage, anchor: Stage, table: Table) -> bool:
    """Whether each axis of the stage has the extent of the anchor's axis that `table` puts in its
    place.
    """
    extents, analyzer = {axis.var: axis.extent for axis in anchor.axes}, tvm.sym.Analyzer()
    return all(
        own.var not in table or analyzer.can_prove_equal(own.extent, extents[table[own.var]])
        for own in stage.axes
    )


def read_anchored(program: Program) -> Anchored | None:
    """The program as a reduction followed by elementwise stages at the same place, None if it is
    none.
    """
    anchor = _anchor(program)
    combine = None if anchor is None else combine_of(anchor)
    if anchor is None or combine is None:
        return None
    total = tirx.decl_buffer([const(1)], dtype_of(anchor.value), name="total", scope="local")
    later = [_at_anchor(stage, anchor, total) for stage in program.stages[1:]]
    if any(stage is None for stage in later):
        return None
    if any(anchor.buffer.same_as(out) for out in program.outputs):
        later.insert(
            0,
            Stage(
                anchor.name, anchor.buffer, anchor.spatial, anchor.indices, load(total, [const(0)])
            ),
        )
    written = [stage.buffer for stage in later if stage is not None]
    if any(
        one.source.same_as(buffer)
        for stage in later
        if stage is not None
        for one in loads(stage.value)
        for buffer in written
    ):
        return None
    flat = Flattener.of(program)
    flat.views[anchor.buffer] = flat.views.get(anchor.buffer, total)
    parts = [flatten_stage(stage, flat) for stage in later if stage is not None]
    outputs = tuple(Output(load(part.buffer, list(part.indices)), part.value) for part in parts)
    return Anchored(anchor, combine, Epilogue(total, outputs), flat)
