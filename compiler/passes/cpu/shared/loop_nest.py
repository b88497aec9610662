"""The loop nest of one stage: the contiguous axis in vectors, reductions in local accumulators.

The axes are walked in their order, but for the one in vectors, which goes innermost. Accumulators
are on the stack, of a size that LLVM keeps in registers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared import plan
from compiler.passes.cpu.shared.lanes import reduce_lanes, vector_index
from compiler.passes.cpu.shared.patterns import (
    at_lane,
    follows_patterns,
    is_shift_or_mask,
    read_patterns,
)
from compiler.passes.cpu.shared.strands import strands_of
from compiler.passes.cpu.shared.vectorizable import is_scalar, is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import across, alloc, blocks, let, nest, serial, store, vectorize
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    bits_of,
    const,
    dtype_of,
    extreme_or_nan,
    load,
    loads,
    nodes,
    substitute,
)
from compiler.tir.flat import stride
from compiler.tir.loops import multiply_extents
from compiler.tir.stages import Axis, Stage

_MAX_OR_NAN = partial(extreme_or_nan, prim.Max)
_MIN_OR_NAN = partial(extreme_or_nan, prim.Min)
_KEEPING_NAN = {prim.Max: _MAX_OR_NAN, prim.Min: _MIN_OR_NAN}
_IDEMPOTENT = (prim.Max, prim.Min, _MAX_OR_NAN, _MIN_OR_NAN)

ROOMY = 32
"""Registers of a vector unit that hold several vectors of a row, computed side by side, beside the
constants of a polynomial.
"""

CHUNK = 128
"""Terms of a sum of columns that one accumulator adds up at most: the rounding error of a sum grows
with its terms, and a channel of an image has a hundred thousand.
"""


@dataclass(frozen=True)
class Combine:
    """The operation of a reduction.

    node: builds the expression of an accumulator and a term, an expression class or an extreme that
    keeps NaN; term: the value that each step combines.
    """

    node: Callable[[Expr, Expr], Expr]
    term: Expr

    def identity(self, init: Expr, dtype: str) -> Expr:
        """A start value that changes nothing."""
        if self.node in _IDEMPOTENT:
            return init
        return tirx.const(0 if self.node is prim.Add else 1, dtype)

    def into(self, buffer: Any, position: Table, *indices: Expr | int) -> None:
        """Emit the combination of an element of the buffer with the term at a position."""
        store(buffer, self.node(load(buffer, indices), substitute(self.term, position)), *indices)


def combine_of(stage: Stage) -> Combine | None:
    """The reduction's operation if it is a sum, product, maximum or minimum."""
    value = stage.value
    if isinstance(value, prim.Select):
        return _combine_keeping_nan(stage, value)
    if not isinstance(value, (prim.Add, prim.Mul, prim.Max, prim.Min)):
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        if _is_accumulator(stage, own) and not _reads_accumulator(stage, term):
            return Combine(type(value), term)
    return None


def _combine_keeping_nan(stage: Stage, value: Expr) -> Combine | None:
    """The operation of `extreme_or_nan`."""
    extreme = value.true_value
    node = _KEEPING_NAN.get(type(extreme))
    if node is None or _reads_accumulator(stage, extreme.b):
        return None
    if not tvm_ffi.structural_equal(value, node(value.false_value, extreme.b)):
        return None
    return Combine(node, extreme.b) if _is_accumulator(stage, value.false_value) else None


def _is_accumulator(stage: Stage, value: Expr) -> bool:
    return isinstance(value, tvm.ir.TensorLoad) and bool(value.source.same_as(stage.buffer))


def _reads_accumulator(stage: Stage, value: Expr) -> bool:
    return any(one.source.same_as(stage.buffer) for one in loads(value))


def lanes_for(stage: Stage, unit: VectorUnit) -> int:
    """Vector lanes by the widest element the stage touches."""
    kinds = [dtype_of(stage.value), *(dtype_of(one) for one in loads(stage.value))]
    return unit.lanes(max(bits_of(kind) for kind in kinds))


def _writes_whole_vectors(stage: Stage, axis: Axis) -> bool:
    return as_int(stride(stage.indices[0], axis.var)) == 1 and dtype_of(stage.value) != "bool"


def is_short(axis: Axis) -> bool:
    """True if the axis is known to be too short for a vector."""
    extent = as_int(axis.extent)
    return extent is not None and extent < 4


def spatial_vector_axis(stage: Stage) -> Axis | None:
    """The result's axis to vectorise: stores are contiguous along it and every load is contiguous
    or constant.
    """
    for axis in reversed(stage.spatial):
        if is_short(axis):
            continue
        if _writes_whole_vectors(stage, axis) and is_vectorizable(stage.value, axis.var):
            return axis
    return None


def vector_axis(stage: Stage, unit: VectorUnit) -> Axis | None:
    """The axis to vectorise of a stage that reduces nothing: that of `spatial_vector_axis`, else
    one along which loads follow patterns.
    """
    column, lanes = spatial_vector_axis(stage), lanes_for(stage, unit)
    if column is not None:
        return column
    others = [node for node in nodes(stage.value, into_loads=False) if not _in_patterns(node)]
    for axis in reversed(stage.spatial):
        if (
            not is_short(axis)
            and _writes_whole_vectors(stage, axis)
            and not any(is_scalar(node, axis.var) for node in others)
            and follows_patterns(stage.value, axis.var, lanes)
        ):
            return axis
    return None


def _in_patterns(node: Expr) -> bool:
    return isinstance(node, tvm.ir.TensorLoad) or is_shift_or_mask(node)


def _reduced_vector_axis(stage: Stage, term: Expr) -> Axis | None:
    for axis in reversed(stage.reduced):
        if is_vectorizable(term, axis.var) and not is_short(axis):
            return axis
    return None


def store_result(stage: Stage, value: Expr, position: Table) -> None:
    """Emit the store of the stage's result at a position of its axes."""
    store(stage.buffer, value, substitute(stage.indices[0], position))


def emit_stage(stage: Stage, unit: VectorUnit, bound: Table | None = None) -> None:
    """Emit the stage over the axes that `bound` does not fix, in one thread; offsets are flat."""
    known = bound or {}
    free = [axis for axis in stage.axes if axis.var not in known]
    if stage.init is not None and stage.reduced:
        _emit_reduction(stage, free, unit, known)
        return
    column = vector_axis(stage, unit)
    strands = strands_of(stage) if column is None else None
    if strands is not None and not any(axis.var in known for axis in strands.replaced):
        for position in nest(strands.others(free), known):
            for start, width in blocks(strands.axis.extent, lanes_for(stage, unit), "strand"):
                strands.emit(stage, position, start, width)
        return
    if column is None or column.var in known:
        for position in nest(free, known):
            store_result(stage, substitute(stage.value, position), position)
        return
    for position in nest([axis for axis in free if axis is not column], known):
        for start, width in blocks(column.extent, lanes_for(stage, unit), column.var.name):
            begin = {**position, column.var: start}
            patterns = read_patterns(stage.value, column.var, begin, width)
            with vectorize(width) as lane:
                here = {**position, column.var: start + lane}
                store_result(stage, at_lane(stage.value, patterns, lane, here), here)


def _emit_reduction(stage: Stage, free: list[Axis], unit: VectorUnit, known: Table) -> None:
    """Emit one of three forms: combined in the result itself, in vectors of neighbouring results,
    or each result in vectors along the reduction.
    """
    combine = combine_of(stage)
    spatial = [axis for axis in free if not axis.reduce]
    reduced = [axis for axis in free if axis.reduce]
    if combine is None:
        # Such as `any`, whose operation has no vector form here.
        for position in nest(spatial, known):
            store_result(stage, substitute(stage.init, position), position)
            for inner in nest(reduced, position):
                store_result(stage, substitute(stage.value, inner), inner)
        return
    column = spatial_vector_axis(stage.map_value(combine.term))
    # Neighbouring results first, since they need no combining of lanes at the end.
    if column is not None and column.var not in known:
        lanes = lanes_for(stage, unit)
        most = _block_width(column, lanes, unit)
        for position in nest([axis for axis in spatial if axis is not column], known):
            for first, width in blocks(column.extent, most):
                _reduce_columns(stage, combine, (column, first, width), lanes, reduced, position)
        return
    along = _reduced_vector_axis(stage, combine.term)
    for position in nest(spatial, known):
        if along is None:
            _reduce_point(stage, combine, reduced, position)
        else:
            _reduce_row(stage, combine, along, reduced, unit, position)


def most_vectors(unit: VectorUnit) -> int:
    """Vectors of neighbouring results that may be reduced side by side."""
    return unit.registers // 2


def _block_width(column: Axis, lanes: int, unit: VectorUnit) -> int:
    extent = as_int(column.extent)
    if extent is None:
        # The rest of an unknown number is taken singly, so blocks of that are single vectors.
        return lanes
    fits = extent % lanes == 0 and extent <= most_vectors(unit) * lanes
    # On a large image, blocks of three vectors took 1.5 times as long as two and then one.
    return max(extent, plan.VECTORS * lanes) if fits else plan.VECTORS * lanes


def _reduce_columns(
    stage: Stage,
    combine: Combine,
    columns: tuple[Axis, Expr, int],
    lanes: int,
    reduced: list[Axis],
    position: Table,
) -> None:
    """Neighbouring results, (axis, first, width), side by side in vector registers."""
    column, first, width = columns
    lanes, dtype = min(lanes, width), dtype_of(stage.value)
    acc = alloc([width], dtype, "acc")
    for lane in across(width, lanes):
        store(acc, substitute(stage.init, {**position, column.var: first + lane}), lane)

    def emit(into: Any, positions: Iterator[Table]) -> None:
        for inner in positions:
            for lane in across(width, lanes):
                combine.into(into, {**inner, column.var: first + lane}, lane)

    if _has_many_terms(combine, dtype, reduced):
        for positions in _chunk_positions(reduced, position):
            part = alloc([width], dtype, "part")
            for lane in across(width, lanes):
                store(part, 0, lane)
            emit(part, positions)
            for lane in across(width, lanes):
                store(acc, load(acc, [lane]) + load(part, [lane]), lane)
    else:
        emit(acc, nest(reduced, position))
    for lane in across(width, lanes):
        store_result(stage, load(acc, [lane]), {**position, column.var: first + lane})


def _has_many_terms(combine: Combine, dtype: str, reduced: list[Axis]) -> bool:
    """True if there may be more floats to add than a chunk has."""
    terms = as_int(multiply_extents([axis.extent for axis in reduced]))
    return combine.node is prim.Add and "float" in dtype and (terms is None or terms > CHUNK)


def _chunk_positions(reduced: list[Axis], position: Table) -> Iterator[Iterator[Table]]:
    """The positions of each chunk of a reduction: some along the first axis, all along the rest."""
    first, *rest = reduced
    inner_terms = as_int(multiply_extents([axis.extent for axis in rest]))
    size = max(CHUNK // max(inner_terms, 1), 1) if inner_terms is not None else 1
    with serial(tirx.ceildiv(first.extent, const(size)), "chunk") as chunk:
        begin = let("begin", chunk * size)
        count = let("count", tirx.min(first.extent - begin, size))
        part = Axis(tirx.Var(first.var.name, "int64"), count, reduce=True)
        yield (
            {**inside, first.var: begin + inside[part.var]}
            for inside in nest([part, *rest], position)
        )


def _reduce_point(stage: Stage, combine: Combine, reduced: list[Axis], position: Table) -> None:
    """One result, element by element."""
    total = alloc([1], dtype_of(stage.value), "total")
    store(total, substitute(stage.init, position), 0)
    for inner in nest(reduced, position):
        combine.into(total, inner, 0)
    store_result(stage, load(total, [0]), position)


def emit_with_reduction(producer: Stage, stage: Stage, unit: VectorUnit) -> bool:
    """Emit a stage that produces a row and a stage that reduces it in one loop, so that the row is
    not read again; return False, with nothing emitted, where `stage` is no such reduction or
    registers are too few. Both compute in the order that they have in loops of their own.
    """
    combine = combine_of(stage) if stage.init is not None else None
    if (
        combine is None
        or producer.init is not None
        or len(producer.axes) != 1
        or len(stage.axes) != 1
    ):
        return False
    (axis,), (along,) = producer.axes, stage.axes
    term = combine.term
    if (
        not along.reduce
        or not isinstance(term, tvm.ir.TensorLoad)
        or not term.source.same_as(producer.buffer)
        or not tvm_ffi.structural_equal(along.extent, axis.extent)
        or not tvm_ffi.structural_equal(
            substitute(term.indices[0], {along.var: axis.var}), producer.indices[0]
        )
        or spatial_vector_axis(producer) is not axis
        or lanes_for(producer, unit) != lanes_for(stage, unit)
        or is_short(along)
        or (
            unit.registers < ROOMY and _reduction_width(stage, along, unit) > lanes_for(stage, unit)
        )
    ):
        return False
    _reduce_row(stage, combine, along, [along], unit, {}, producer)
    return True


def _reduce_row(
    stage: Stage,
    combine: Combine,
    along: Axis,
    reduced: list[Axis],
    unit: VectorUnit,
    position: Table,
    producer: Stage | None = None,
) -> None:
    """One result: a vector of partial results along `along`, combined at the end, then the rest.

    producer: a stage of one axis whose results are reduced, if they are computed in this loop.
    """
    dtype, width = dtype_of(stage.value), _reduction_width(stage, along, unit)
    lanes = min(width, lanes_for(stage, unit))
    total = alloc([1], dtype, "total")
    partial = alloc([width], dtype, "partial")
    init = substitute(stage.init, position)
    for lane in across(width, lanes):
        store(partial, combine.identity(init, dtype), lane)
    # Partial results outlive the outer axes of the reduction: they are combined once, not once for
    # each row of it.
    outer = [axis for axis in reduced if axis is not along]
    full = along.extent // width
    for inner in nest(outer, position):
        with serial(full, "block") as block:
            for lane in across(width, lanes):
                if producer is not None:
                    here = {producer.axes[0].var: block * width + lane}
                    store_result(producer, substitute(producer.value, here), here)
                combine.into(partial, {**inner, along.var: block * width + lane}, lane)
    if producer is not None:
        for start, few in blocks(along.extent - full * width, lanes):
            with vectorize(few) as lane:
                here = {producer.axes[0].var: full * width + start + lane}
                store_result(producer, substitute(producer.value, here), here)
    vectors = [load(partial, [vector_index(lanes, first)]) for first in range(0, width, lanes)]
    store(total, combine.node(init, reduce_lanes(vectors, combine.node, dtype)), 0)
    for inner in nest(outer, position):
        with serial(along.extent - full * width, "rest") as i:
            combine.into(total, {**inner, along.var: full * width + i}, 0)
    store_result(stage, load(total, [0]), position)


def _reduction_width(stage: Stage, along: Axis, unit: VectorUnit) -> int:
    lanes = lanes_for(stage, unit)
    extent = as_int(along.extent)
    # Four vectors of partial results hide the latency of an addition, four cycles since Skylake,
    # but are a waste for a row that is not much longer than they are.
    return lanes * 4 if extent is not None and extent >= lanes * 8 else lanes
