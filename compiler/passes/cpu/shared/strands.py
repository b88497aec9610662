"""Stages whose neighbouring results come from a few strands in turn, such as the channels of a
shuffle, or the colours of an image when they become its last axis.

Each strand is computed in vectors of its own, which are interleaved in registers. A loop over
elements would take a division, a choice and a store for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared import plan
from compiler.passes.cpu.shared.lanes import lanes_of, shuffle, vector_index
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.tir.building import alloc, emit, store, vectorize
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    const,
    dtype_of,
    is_choice,
    load,
    nodes,
    rewrite,
    substitute,
)
from compiler.tir.flat import analyzer_for, stride
from compiler.tir.stages import Axis, Stage


@dataclass(frozen=True)
class Strands:
    """The stage's result at offset `index` + g is `values[g]`, for every position along `axis`.

    replaced: the axes of the stage that `axis` and the number of the strand replace.
    """

    values: tuple[Expr, ...]
    axis: Axis
    index: Expr
    replaced: tuple[Axis, ...]

    def others(self, axes: Sequence[Axis]) -> list[Axis]:
        """Those of the axes that the strands do not replace."""
        return [axis for axis in axes if not any(axis is own for own in self.replaced)]

    def emit(self, stage: Stage, position: Table, start: Expr, width: int) -> None:
        """Emit `width` positions along the axis from `start` on, at a position of the others."""
        dtype, vectors = dtype_of(stage.value), []
        offset = substitute(self.index, {**position, self.axis.var: start})
        if width == 1:
            for number, value in enumerate(self.values):
                element = substitute(value, {**position, self.axis.var: start})
                store(stage.buffer, element, offset + number)
            return
        for value in self.values:
            strand = alloc([width], dtype, "strand")
            with vectorize(width) as lane:
                store(strand, substitute(value, {**position, self.axis.var: start + lane}), lane)
            vectors.append(load(strand, [vector_index(width)]))
        for number, vector in enumerate(_interleave(vectors)):
            index = prim.Ramp(offset + number * width, const(1), width)
            emit(tirx.BufferStore(stage.buffer, vector, [index]))


def strands_of(stage: Stage) -> Strands | None:
    """The strands of a flat stage without a reduction: a last axis of a few positions, or one of
    whose indices the stage takes the remainder by a small divisor. None where it has none.
    """
    inner = next((axis for axis in stage.axes if _step(stage, axis) == 1), None)
    count = None if inner is None else as_int(inner.extent)
    if inner is None or count is None or dtype_of(stage.value) == "bool":
        return None
    if count <= plan.MOST_STRANDS:
        outer = next((axis for axis in stage.axes if _step(stage, axis) == count), None)
        if outer is None or count < 2:
            return None
        return _make_strands(
            stage, outer, (outer, inner), [{inner.var: const(g)} for g in range(count)]
        )
    if not any(isinstance(node, prim.FloorMod) for node in nodes(stage.value)):
        return None
    for number in range(2, plan.MOST_STRANDS + 1):
        if count % number == 0:
            axis = Axis(tirx.Var(inner.var.name, "int64"), const(count // number))
            positions: list[Table] = [{inner.var: axis.var * number + g} for g in range(number)]
            strands = _make_strands(stage, axis, (inner,), positions)
            if strands is not None:
                return strands
    return None


def _step(stage: Stage, axis: Axis) -> int | None:
    return as_int(stride(stage.indices[0], axis.var))


def _make_strands(
    stage: Stage, axis: Axis, replaced: tuple[Axis, ...], positions: Sequence[Table]
) -> Strands | None:
    """The strands whose replaced axes are at these positions, None where one of them cannot be
    computed in vectors.
    """
    analyzer = analyzer_for((*stage.axes, axis))
    values = tuple(_evaluate_at(stage.value, position, analyzer) for position in positions)
    if not all(is_vectorizable(value, axis.var) for value in values):
        return None
    return Strands(
        values, axis, analyzer.simplify(substitute(stage.indices[0], positions[0])), replaced
    )


def _evaluate_at(value: Expr, position: Table, analyzer: tvm.sym.Analyzer) -> Expr:
    """The value at a position, with simplified offsets, and choices decided where they can be."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad):
            index = rewrite(node.indices[0], visit)
            return load(node.source, [analyzer.simplify(index)])
        if is_choice(node):
            known = as_int(analyzer.simplify(substitute(node.args[0], position)))
            return None if known is None else rewrite(node.args[1 if known else 2], visit)
        return position.get(node) if isinstance(node, tvm.ir.Var) else None

    return rewrite(value, visit)


def _interleave(vectors: Sequence[Expr]) -> list[Expr]:
    """Interleave the elements of the vectors: each shuffle puts one more strand into its lanes."""
    width, count = lanes_of(vectors[0]), len(vectors)
    result = []
    for first in range(0, count * width, width):
        sources = [divmod(first + lane, count) for lane in range(width)]
        mixed, lanes = vectors[0], [source for source, _ in sources]
        for strand in range(1, count):
            chosen = [
                width + source if own == strand else lane
                for lane, (source, own) in zip(lanes, sources, strict=True)
            ]
            mixed, lanes = shuffle([mixed, vectors[strand]], chosen), list(range(width))
        result.append(mixed)
    return result
