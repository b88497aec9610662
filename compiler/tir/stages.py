"""Reading a tensor program as a list of stages: one perfect loop nest that writes one
buffer each.
"""

from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import (
    Expr,
    as_int,
    children,
    const,
    dtype_of,
    is_choice,
    loads,
    replace_loads,
    rewrite,
    substitute,
)

_DATA_PARALLEL, _REDUCE = 0, 2


@dataclass(frozen=True)
class Axis:
    """A loop from 0 to `extent`; `reduce` axes are summed (or otherwise combined) over."""

    var: Any
    extent: Expr
    reduce: bool = False


@dataclass(frozen=True)
class Stage:
    """`buffer[indices] = value` over `axes`; with `init` the value combines with what the buffer
    holds, starting there.
    """

    name: str
    buffer: Any
    axes: tuple[Axis, ...]
    indices: tuple[Expr, ...]
    value: Expr
    init: Expr | None = None

    @property
    def spatial(self) -> tuple[Axis, ...]:
        """The axes of the result."""
        return tuple(axis for axis in self.axes if not axis.reduce)

    @property
    def reduced(self) -> tuple[Axis, ...]:
        """The axes combined over."""
        return tuple(axis for axis in self.axes if axis.reduce)

    def map_value(self, value: Expr) -> "Stage":
        """The same stage with another value."""
        return replace(self, value=value)


@dataclass(frozen=True)
class Program:
    """A function whose body is `stages`, in order.

    params: its buffers; dims that no buffer gives come as numbers beside them. locals: the buffers
    in between.
    """

    params: tuple[Any, ...]
    locals: tuple[Any, ...]
    stages: tuple[Stage, ...]
    attrs: Any

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The parameters that some stage writes."""
        return tuple(
            p for p in self.params if any(stage.buffer.same_as(p) for stage in self.stages)
        )


def _stage(stmt: Any) -> Stage | None:
    loops: dict[Any, Expr] = {}
    while isinstance(stmt, tirx.For):
        if as_int(stmt.min) != 0 or int(stmt.kind) != 0 or stmt.step is not None:
            return None
        loops[stmt.loop_var] = stmt.extent
        stmt = stmt.body
    if not isinstance(stmt, tvm.s_tir.SBlockRealize) or as_int(stmt.predicate) != 1:
        return None
    block = stmt.block
    if (
        not isinstance(block.body, tirx.BufferStore)
        or len(block.alloc_buffers)
        or len(block.match_buffers)
        or getattr(block.body, "predicate", None)
    ):
        return None
    axes = []
    for bound, axis in zip(stmt.iter_values, block.iter_vars, strict=True):
        kind = int(axis.iter_type)
        if kind not in (_DATA_PARALLEL, _REDUCE) or as_int(axis.dom.min) != 0:
            return None
        if not (bound in loops or (as_int(bound) == 0 and as_int(axis.dom.extent) == 1)):
            return None
        axes.append(Axis(axis.var, _wide(axis.dom.extent), kind == _REDUCE))
    if sum(bound in loops for bound in stmt.iter_values) != len(loops):
        return None
    init = block.init
    if init is not None and not isinstance(init, tirx.BufferStore):
        return None
    store = block.body
    stage = Stage(
        str(block.name_hint),
        store.buffer,
        tuple(axes),
        tuple(store.indices),
        store.value,
        None if init is None else init.value,
    )
    return _combined_once(stage)


def _combined_once(stage: Stage) -> Stage:
    """A reduction whose axes all have extent 1 combines one element with the initial value: no
    reduction at all.

    Loops of extent 1 vanish later, and with them the place where the initial value would be
    written.
    """
    if stage.init is None or any(as_int(axis.extent) != 1 for axis in stage.reduced):
        return stage

    value = replace_loads(
        stage.value, stage.buffer, stage.init, {axis.var: const(0) for axis in stage.reduced}
    )
    return replace(stage, axes=stage.spatial, value=value, init=None)


def _wide(expr: Expr) -> Expr:
    value = as_int(expr)
    if value is not None:
        return const(value)
    return expr if dtype_of(expr) == "int64" else prim.Cast(tvm.ir.PrimType("int64"), expr)


def read_program(func: tirx.PrimFunc) -> Program | None:
    """The stages of a scheduled-nothing function as TE or fusion makes it, or None if it has any
    other form.
    """
    root = func.body
    if not isinstance(root, tvm.s_tir.SBlockRealize):
        return None
    block = root.block
    if len(block.iter_vars) or len(block.match_buffers) or block.init is not None:
        return None
    body = list(block.body.seq) if isinstance(block.body, tirx.SeqStmt) else [block.body]
    stages = [_stage(stmt) for stmt in body]
    try:
        for stage in stages:
            if stage is None:
                return None
            list(loads(stage.value))
    except TypeError:
        return None
    buffers = tuple(param for param in func.params if hasattr(param.ty, "shape"))
    return Program(
        buffers, tuple(block.alloc_buffers), tuple(s for s in stages if s is not None), func.attrs
    )


def read_copy(func: Any) -> tuple[list[Any], list[Expr]] | None:
    """The variables over which a function of one tensor copies it, and the indices it reads at;
    None for any other function.
    """
    program = read_program(func) if isinstance(func, tirx.PrimFunc) else None
    if program is not None and len(program.params) != 2:
        return None
    stage = program.stages[0] if program is not None and len(program.stages) == 1 else None
    if stage is None or stage.init is not None or not isinstance(stage.value, tvm.ir.TensorLoad):
        return None
    variables, read = [axis.var for axis in stage.axes], list(stage.value.indices)
    same = len(read) == len(variables) and all(
        index.same_as(var) for index, var in zip(stage.indices, variables, strict=True)
    )
    return (variables, read) if same else None


def value_at(stage: Stage, indices: list[Expr]) -> Expr | None:
    """The value of a spatial stage at `indices`, None where it stores through computed indices."""
    table: dict[Any, Expr] = {}
    for index, position in zip(stage.indices, indices, strict=True):
        if any(index.same_as(axis.var) for axis in stage.axes) and index not in table:
            table[index] = position
        elif as_int(index) is None:
            return None
    if any(axis.var not in table and as_int(axis.extent) != 1 for axis in stage.axes):
        return None
    return substitute(stage.value, {**{axis.var: const(0) for axis in stage.axes}, **table})


def _weight(expr: Expr) -> int:
    return sum(1 for _ in _all_nodes(expr))


def _all_nodes(expr: Expr) -> list[Expr]:
    collected: list[Expr] = []
    stack = [expr]
    while stack and len(collected) < 400:
        node = stack.pop()
        collected.append(node)
        stack.extend(children(node))
    return collected


def _heavy(expr: Expr) -> bool:
    return (
        any(isinstance(node, tvm.ir.Call) and not is_choice(node) for node in _all_nodes(expr))
        or _weight(expr) > 60
    )


def drop_empty_stages(program: Program) -> Program:
    """The stages that write something, at known extents; a reduction of nothing writes its initial
    value, and nothing is read of buffers without elements.
    """

    def visit(node: Expr) -> Expr | None:
        empty = isinstance(node, tvm.ir.TensorLoad) and 0 in map(as_int, node.source.shape)
        return tirx.const(0, dtype_of(node)) if empty else None

    stages = []
    for stage in program.stages:
        if any(as_int(axis.extent) == 0 for axis in stage.spatial):
            continue
        if any(as_int(axis.extent) == 0 for axis in stage.reduced):
            stage = replace(stage, axes=stage.spatial, value=stage.init, init=None)
        stages.append(stage.map_value(rewrite(stage.value, visit)))
    return replace(program, stages=tuple(stages))


def inline_stages(program: Program) -> Program:
    """Spatial stages moved into their readers: always when read at one place, when cheap otherwise.
    Results stay the same.
    """
    stages, keep = list(program.stages), []
    outputs = program.outputs
    while stages:
        stage = stages.pop(0)
        readers = [
            later
            for later in stages
            if any(one.source.same_as(stage.buffer) for one in loads(later.value))
        ]
        reads = [
            one
            for later in readers
            for one in loads(later.value)
            if one.source.same_as(stage.buffer)
        ]
        written_once = sum(other.buffer.same_as(stage.buffer) for other in program.stages) == 1
        movable = (
            stage.init is None
            and written_once
            and not any(stage.buffer.same_as(out) for out in outputs)
            and reads
        )
        single = len(reads) == 1 and not readers[0].reduced
        if movable and (single or not _heavy(stage.value)):
            values = [value_at(stage, list(one.indices)) for one in reads]
            if all(value is not None for value in values):
                stages = [later.map_value(_inline(later.value, stage)) for later in stages]
                continue
        keep.append(stage)
    live = [
        buffer for buffer in program.locals if any(stage.buffer.same_as(buffer) for stage in keep)
    ]
    return replace(program, stages=tuple(keep), locals=tuple(live))


def _inline(value: Expr, stage: Stage) -> Expr:
    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad) and node.source.same_as(stage.buffer):
            return value_at(stage, [rewrite(index, visit) for index in node.indices])
        return None

    return rewrite(value, visit)
