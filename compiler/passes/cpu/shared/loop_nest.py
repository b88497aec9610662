"""The loop nest of one stage: the contiguous axis in vectors, reductions in local accumulators."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    bits_of,
    const,
    dtype_of,
    is_choice,
    load,
    loads,
    nodes,
    substitute,
    uses,
)
from compiler.tir.flat import stride
from compiler.tir.loops import Stmt, allocate, blocks, seq, serial, store, strips, vectorized
from compiler.tir.stages import Axis, Stage

_IDEMPOTENT = (prim.Max, prim.Min)
_VECTOR_CALLS = frozenset(
    "tirx." + name
    for name in (
        "exp",
        "erf",
        "tanh",
        "sigmoid",
        "sqrt",
        "rsqrt",
        "floor",
        "ceil",
        "fabs",
        "round",
        "trunc",
        "nearbyint",
        "log",
        "reinterpret",
        "fma",
    )
)


@dataclass(frozen=True)
class Combine:
    """How a reduction combines: `node` is the expression class, `term` what each step adds."""

    node: type
    term: Expr

    def identity(self, init: Expr, dtype: str) -> Expr:
        """A start value that changes nothing."""
        if self.node in _IDEMPOTENT:
            return init
        return tirx.const(0 if self.node is prim.Add else 1, dtype)

    def into(self, buffer: Any, at: Table, *where: Expr) -> Stmt:
        """Combines an element of the buffer with the term at `at`."""
        return store(
            buffer, self.node(load(buffer, list(where)), substitute(self.term, at)), *where
        )


def combine_of(stage: Stage) -> Combine | None:
    """The reduction's operation if it is a sum, product, maximum or minimum."""
    value = stage.value
    if not isinstance(value, (prim.Add, prim.Mul, prim.Max, prim.Min)):
        return None
    for own, term in ((value.a, value.b), (value.b, value.a)):
        reads = isinstance(own, tvm.ir.TensorLoad) and own.source.same_as(stage.buffer)
        if reads and not any(one.source.same_as(stage.buffer) for one in loads(term)):
            return Combine(type(value), term)
    return None


def _scalar_call(node: Any, var: Any) -> bool:
    """Whether a call that reads `var` has no vector form: a choice by it, or a function without
    one.
    """
    return (
        bool(uses(node.args[0], var))
        if is_choice(node)
        else getattr(node.op, "name", "") not in _VECTOR_CALLS
    )


def vectorizable(value: Expr, var: Any) -> bool:
    """Whether `value` can be computed for neighbouring values of `var` in one vector, every access
    a whole or a single element.
    """
    for node in nodes(value):
        if isinstance(node, tvm.ir.TensorLoad) and (
            as_int(stride(node.indices[0], var)) not in (0, 1) or dtype_of(node) == "bool"
        ):
            return False
        if isinstance(node, tvm.ir.Call) and uses(node, var) and _scalar_call(node, var):
            return False
        if (
            isinstance(node, (prim.FloorDiv, prim.FloorMod, prim.Div, prim.Mod))
            and not dtype_of(node).startswith(("float", "bfloat"))
            and uses(node, var)
        ):
            return False
    return True


def lanes_for(stage: Stage, unit: VectorUnit) -> int:
    """Vector lanes by the widest element the stage touches."""
    kinds = [dtype_of(stage.value), *(dtype_of(one) for one in loads(stage.value))]
    return unit.lanes(max(bits_of(kind) for kind in kinds))


def _writes_whole_vectors(stage: Stage, axis: Axis) -> bool:
    return as_int(stride(stage.indices[0], axis.var)) == 1 and dtype_of(stage.value) != "bool"


def is_short(axis: Axis) -> bool:
    """Whether the axis is known to fill no vector."""
    extent = as_int(axis.extent)
    return extent is not None and extent < 4


def spatial_vector_axis(stage: Stage) -> Axis | None:
    """The result's axis to vectorise: stores are contiguous along it and every load is contiguous
    or constant.
    """
    for axis in reversed(stage.spatial):
        if is_short(axis):
            continue
        if _writes_whole_vectors(stage, axis) and vectorizable(stage.value, axis.var):
            return axis
    return None


def _reduced_vector_axis(stage: Stage, term: Expr) -> Axis | None:
    for axis in reversed(stage.reduced):
        if vectorizable(term, axis.var) and not is_short(axis):
            return axis
    return None


def nest(axes: tuple[Axis, ...], body: Callable[[Table], Stmt], bound: Table | None = None) -> Stmt:
    """Serial loops over `axes`; `body` gets the value of each axis' variable."""
    values = bound or {}
    if not axes:
        return body(values)
    first, rest = axes[0], axes[1:]
    return serial(
        first.extent, lambda i: nest(rest, body, {**values, first.var: i}), first.var.name
    )


def write(stage: Stage, value: Expr, at: Table) -> Stmt:
    """The value as the stage's result where its axes are `at`."""
    return store(stage.buffer, value, substitute(stage.indices[0], at))


def emit_stage(stage: Stage, unit: VectorUnit, bound: Table | None = None) -> Stmt:
    """Serial code for the stage over the axes that `bound` leaves; offsets are flat."""
    values = bound or {}
    free = tuple(axis for axis in stage.axes if axis.var not in values)
    if stage.init is not None and stage.reduced:
        return _emit_reduction(stage, free, unit, values)
    axis = next((a for a in [spatial_vector_axis(stage)] if a is not None and a in free), None)
    outer = tuple(a for a in free if a is not axis)

    def point(at: Table) -> Stmt:
        return write(stage, substitute(stage.value, at), at)

    if axis is None:
        return nest(free, point, values)
    lanes = lanes_for(stage, unit)
    return nest(
        outer,
        lambda at: strips(axis.extent, lanes, lambda j: point({**at, axis.var: j}), axis.var.name),
        values,
    )


def _emit_reduction(stage: Stage, free: tuple[Axis, ...], unit: VectorUnit, values: Table) -> Stmt:
    combine = combine_of(stage)
    spatial = tuple(axis for axis in free if not axis.reduce)
    reduced = tuple(axis for axis in free if axis.reduce)
    if combine is None:
        return _emit_in_place(stage, spatial, reduced, values)
    across = spatial_vector_axis(stage.map_value(combine.term))
    if across is not None and across in spatial:
        return _reduce_columns(
            stage,
            combine,
            across,
            tuple(a for a in spatial if a is not across),
            reduced,
            unit,
            values,
        )
    along = _reduced_vector_axis(stage, combine.term)
    return nest(spatial, lambda at: _reduce_point(stage, combine, along, reduced, unit, at), values)


def _emit_in_place(
    stage: Stage, spatial: tuple[Axis, ...], reduced: tuple[Axis, ...], values: Table
) -> Stmt:
    def point(at: Table) -> Stmt:
        steps = nest(reduced, lambda inner: write(stage, substitute(stage.value, inner), inner), at)
        return seq(write(stage, substitute(stage.init, at), at), steps)

    return nest(spatial, point, values)


def _reduce_columns(
    stage: Stage,
    combine: Combine,
    axis: Axis,
    outer: tuple[Axis, ...],
    reduced: tuple[Axis, ...],
    unit: VectorUnit,
    values: Table,
) -> Stmt:
    dtype = dtype_of(stage.value)
    lanes = lanes_for(stage, unit)

    def strip(at: Table, base: Expr, width: int) -> Stmt:
        acc, allocation = allocate([width], dtype, "acc")

        def lane_loop(make: Callable[[Expr, Table], Stmt], table: Table) -> Stmt:
            return vectorized(width, lambda lane: make(lane, {**table, axis.var: base + lane}))

        start = lane_loop(lambda lane, table: store(acc, substitute(stage.init, table), lane), at)
        steps = nest(
            reduced,
            lambda inner: lane_loop(lambda lane, table: combine.into(acc, table, lane), inner),
            at,
        )
        finish = lane_loop(lambda lane, table: write(stage, load(acc, [lane]), table), at)
        return seq(allocation, start, steps, finish)

    return nest(
        outer,
        lambda at: blocks(axis.extent, lanes, lambda base, width: strip(at, base, width)),
        values,
    )


def _reduce_point(
    stage: Stage,
    combine: Combine,
    along: Axis | None,
    reduced: tuple[Axis, ...],
    unit: VectorUnit,
    at: Table,
) -> Stmt:
    """One element of the result: partial results in a vector along `along`, combined at the end."""
    dtype = dtype_of(stage.value)
    total, allocation = allocate([1], dtype, "total")
    zero = const(0)
    start = store(total, substitute(stage.init, at), zero)
    finish = write(stage, load(total, [zero]), at)
    if along is None:
        return seq(
            allocation,
            start,
            nest(reduced, lambda inner: combine.into(total, inner, zero), at),
            finish,
        )
    outer = tuple(axis for axis in reduced if axis is not along)
    lanes = _reduction_lanes(stage, along, unit)
    acc, more = allocate([lanes], dtype, "partial")
    clear = vectorized(
        lanes, lambda lane: store(acc, combine.identity(substitute(stage.init, at), dtype), lane)
    )
    full = along.extent // const(lanes)

    def vector(inner: Table, c: Expr) -> Stmt:
        return vectorized(
            lanes,
            lambda lane: combine.into(acc, {**inner, along.var: c * const(lanes) + lane}, lane),
        )

    def one(inner: Table, t: Expr) -> Stmt:
        return combine.into(total, {**inner, along.var: full * const(lanes) + t}, zero)

    vectors = nest(outer, lambda inner: serial(full, partial(vector, inner), "block"), at)
    gather = serial(
        lanes,
        lambda lane: store(total, combine.node(load(total, [zero]), load(acc, [lane])), zero),
        "lane",
    )
    tail = nest(
        outer,
        lambda inner: serial(along.extent - full * const(lanes), partial(one, inner), "rest"),
        at,
    )
    return seq(allocation, more, start, clear, vectors, gather, tail, finish)


def _reduction_lanes(stage: Stage, along: Axis, unit: VectorUnit) -> int:
    lanes = lanes_for(stage, unit)
    extent = as_int(along.extent)
    return lanes * 4 if extent is not None and extent >= lanes * 8 else lanes
