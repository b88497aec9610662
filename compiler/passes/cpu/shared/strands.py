"""Stages whose neighbouring results come from a few strands in turn, as the channels of a shuffle
or the colours of an image that become its last axis.

Each strand is computed in vectors of its own, which are interleaved in registers: one by one, every
element would take a division, a choice and a store.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.lanes import lanes_of, shuffled, whole
from compiler.passes.cpu.shared.vectorizable import vectorizable
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

MOST = 4
"""Strands that are interleaved at most: each takes one more instruction for every vector."""


@dataclass(frozen=True)
class Strands:
    """The stage's result at offset `index` + g is `values[g]`, for every place of `axis`.

    given: the axes of the stage that `axis` and the number of the strand stand for.
    """

    values: tuple[Expr, ...]
    axis: Axis
    index: Expr
    given: tuple[Axis, ...]

    def others(self, axes: Sequence[Axis]) -> list[Axis]:
        """Those of the axes that the strands do not stand for."""
        return [axis for axis in axes if not any(axis is own for own in self.given)]

    def emit(self, stage: Stage, at: Table, start: Expr, width: int) -> None:
        """Emit `width` places of the axis from `start` on, where the other axes are `at`."""
        dtype, vectors = dtype_of(stage.value), []
        offset = substitute(self.index, {**at, self.axis.var: start})
        if width == 1:
            for number, value in enumerate(self.values):
                element = substitute(value, {**at, self.axis.var: start})
                store(stage.buffer, element, offset + number)
            return
        for value in self.values:
            strand = alloc([width], dtype, "strand")
            with vectorize(width) as lane:
                store(strand, substitute(value, {**at, self.axis.var: start + lane}), lane)
            vectors.append(load(strand, [whole(width)]))
        for number, vector in enumerate(_interleaved(vectors)):
            place = prim.Ramp(offset + number * width, const(1), width)
            emit(tirx.BufferStore(stage.buffer, vector, [place]))


def strands_of(stage: Stage) -> Strands | None:
    """The strands of a flat stage that reduces nothing: of a last axis of a few places, or of one
    whose places are told apart by their rest in a division by a few. None where it has none.
    """
    inner = next((axis for axis in stage.axes if _step(stage, axis) == 1), None)
    count = None if inner is None else as_int(inner.extent)
    if inner is None or count is None or dtype_of(stage.value) == "bool":
        return None
    if count <= MOST:
        outer = next((axis for axis in stage.axes if _step(stage, axis) == count), None)
        if outer is None or count < 2:
            return None
        return _checked(stage, outer, (outer, inner), [{inner.var: const(g)} for g in range(count)])
    if not any(isinstance(node, prim.FloorMod) for node in nodes(stage.value)):
        return None
    for number in range(2, MOST + 1):
        if count % number == 0:
            axis = Axis(tirx.Var(inner.var.name, "int64"), const(count // number))
            places: list[Table] = [{inner.var: axis.var * number + g} for g in range(number)]
            found = _checked(stage, axis, (inner,), places)
            if found is not None:
                return found
    return None


def _step(stage: Stage, axis: Axis) -> int | None:
    return as_int(stride(stage.indices[0], axis.var))


def _checked(
    stage: Stage, axis: Axis, given: tuple[Axis, ...], places: Sequence[Table]
) -> Strands | None:
    """The strands with the variables of `given` at these places, None where one of them has no
    form in vectors.
    """
    analyzer = analyzer_for((*stage.axes, axis))
    values = tuple(_at(stage.value, place, analyzer) for place in places)
    if not all(vectorizable(value, axis.var) for value in values):
        return None
    return Strands(values, axis, analyzer.simplify(substitute(stage.indices[0], places[0])), given)


def _at(value: Expr, place: Table, analyzer: tvm.sym.Analyzer) -> Expr:
    """The value at a place, with its offsets simplified and its choices made where they can be."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad):
            index = rewrite(node.indices[0], visit)
            return load(node.source, [analyzer.simplify(index)])
        if is_choice(node):
            known = as_int(analyzer.simplify(substitute(node.args[0], place)))
            return None if known is None else rewrite(node.args[1 if known else 2], visit)
        return place.get(node) if isinstance(node, tvm.ir.Var) else None

    return rewrite(value, visit)


def _interleaved(vectors: Sequence[Expr]) -> list[Expr]:
    """Elements of the vectors in turn, in as many vectors: every instruction puts those of one more
    strand into their lanes.
    """
    width, count = lanes_of(vectors[0]), len(vectors)
    result = []
    for first in range(0, count * width, width):
        places = [divmod(first + lane, count) for lane in range(width)]
        mixed, lanes = vectors[0], [place for place, _ in places]
        for strand in range(1, count):
            chosen = [
                width + place if own == strand else lane
                for lane, (place, own) in zip(lanes, places, strict=True)
            ]
            mixed, lanes = shuffled([mixed, vectors[strand]], chosen), list(range(width))
        result.append(mixed)
    return result
