"""Buffers seen as flat memory: every access is one offset, so strides can be read and loops merged."""

from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.tir.exprs import Expr, as_int, const, load, loads, nodes, rewrite, substitute
from compiler.passes.tir.loops import Stmt, product
from compiler.passes.tir.stages import Axis, Program, Stage


@dataclass
class Flattener:
    """Turns accesses of n-dimensional buffers into accesses of flat views; `prelude` declares the views of parameters."""

    views: dict[Any, Any] = field(default_factory=dict)
    prelude: list[Stmt] = field(default_factory=list)
    allocations: list[Stmt] = field(default_factory=list)

    def parameter(self, buffer: Any) -> Any:
        """The flat view of a parameter."""
        view = tirx.decl_buffer([product(list(buffer.shape))], buffer.dtype, name=f"{buffer.name}_flat", data=buffer.data)
        self.views[buffer] = view
        self.prelude.append(tirx.DeclBuffer(view, data=buffer.data))
        return view

    def scratch(self, buffer: Any, scope: str = "global") -> Any:
        """A flat allocation in place of a local buffer."""
        view = tirx.decl_buffer([product(list(buffer.shape))], buffer.dtype, name=f"{buffer.name}_flat", scope=scope)
        self.views[buffer] = view
        self.allocations.append(tirx.AllocBuffer(view))
        return view

    def offset(self, buffer: Any, indices: list[Expr], analyzer: Any) -> Expr:
        """Row-major offset of `indices`, simplified."""
        total: Expr = const(0)
        for extent, index in zip(buffer.shape, indices, strict=True):
            total = total * extent + index
        return analyzer.simplify(total)

    def value(self, expr: Expr, analyzer: Any) -> Expr:
        """`expr` with every load of a known buffer made flat."""

        def visit(node: Expr) -> Expr | None:
            if isinstance(node, tvm.ir.TensorLoad) and node.source in self.views:
                indices = [rewrite(index, visit) for index in node.indices]
                return load(self.views[node.source], [self.offset(node.source, indices, analyzer)])
            return None

        return rewrite(expr, visit)


def analyzer_for(axes: tuple[Axis, ...]) -> Any:
    """An analyzer that knows the range of every axis."""
    analyzer = tvm.sym.Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, tvm.ir.Range(const(0), axis.extent))
    return analyzer


def flatten_stage(stage: Stage, flat: Flattener) -> Stage:
    """The stage over flat buffers, axes of extent 1 removed."""
    ones = {axis.var: const(0) for axis in stage.axes if as_int(axis.extent) == 1}
    axes = tuple(axis for axis in stage.axes if axis.var not in ones)
    analyzer = analyzer_for(axes)
    indices = [substitute(index, ones) for index in stage.indices]
    offset = flat.offset(stage.buffer, indices, analyzer)
    value = flat.value(substitute(stage.value, ones), analyzer)
    return replace(stage, axes=axes, buffer=flat.views[stage.buffer], indices=(offset,), value=value)


def flatten(program: Program) -> tuple[Program, Flattener]:
    """The program over flat buffers, its local buffers allocated whole."""
    flat = Flattener()
    params = tuple(flat.parameter(buffer) for buffer in program.params)
    inner = tuple(flat.scratch(buffer) for buffer in program.locals)
    return replace(program, params=params, locals=inner, stages=tuple(flatten_stage(stage, flat) for stage in program.stages)), flat


def stride(offset: Expr, var: Any) -> Expr | None:
    """By how much `offset` grows as `var` grows by one; None when that is not constant over the loop."""
    found = tvm.sym.detect_linear_equation(offset, [var])
    return found[0] if len(found) == 2 else None


def strides(stage: Stage, var: Any) -> list[Expr | None]:
    """The stride of every access of the stage in `var`, the store first."""
    return [stride(stage.indices[0], var), *(stride(one.indices[0], var) for one in loads(stage.value))]


def _mergeable(stage: Stage, outer: Axis, inner: Axis, analyzer: Any) -> bool:
    for high, low in zip(strides(stage, outer.var), strides(stage, inner.var), strict=True):
        if high is None or low is None or not analyzer.can_prove_equal(high, low * inner.extent):
            return False
    return not _used_outside_offsets(stage.value, (outer.var, inner.var))


def _used_outside_offsets(value: Expr, variables: tuple[Any, ...]) -> bool:
    return any(var.same_as(node) for var in variables for node in nodes(value, into_loads=False))


def merge_axes(stage: Stage) -> Stage:
    """Neighbouring axes that every access walks as one become one."""
    position = len(stage.axes) - 2
    while position >= 0:
        outer, inner = stage.axes[position : position + 2]
        analyzer = analyzer_for(())
        if outer.reduce == inner.reduce and _mergeable(stage, outer, inner, analyzer):
            stage = _merge(stage, position)
        position = min(position - 1, len(stage.axes) - 2)
    return stage


def _merge(stage: Stage, position: int) -> Stage:
    outer, inner = stage.axes[position : position + 2]
    var = tirx.Var(f"{inner.var.name}", "int64")
    merged = Axis(var, product([outer.extent, inner.extent]), inner.reduce)
    axes = (*stage.axes[:position], merged, *stage.axes[position + 2 :])
    analyzer = analyzer_for(axes)
    table = {outer.var: const(0), inner.var: var}

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad):
            return load(node.source, [analyzer.simplify(substitute(node.indices[0], table))])
        return None

    offset = analyzer.simplify(substitute(stage.indices[0], table))
    return replace(stage, axes=axes, indices=(offset,), value=rewrite(stage.value, visit))
