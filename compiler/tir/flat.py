"""Buffers seen as flat memory: every access is one offset, so strides can be read and
loops merged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import tirx

from compiler.tir.building import allocation
from compiler.tir.exprs import Expr, as_int, const, load, loads, nodes, rewrite, substitute
from compiler.tir.loops import Stmt, multiply_extents
from compiler.tir.stages import Axis, Program, Stage


@dataclass
class Flattener:
    """Turns accesses of n-dimensional buffers into accesses of flat views; `prelude` declares the
    views of parameters.
    """

    views: dict[Any, Any] = field(default_factory=dict)
    prelude: list[Stmt] = field(default_factory=list)
    allocations: list[Stmt] = field(default_factory=list)

    @classmethod
    def of(cls, program: Program) -> "Flattener":
        """One that knows the program's parameters."""
        flat = cls()
        for buffer in program.params:
            flat.parameter(buffer)
        return flat

    def parameter(self, buffer: Any) -> Any:
        """The flat view of a parameter."""
        view = tirx.decl_buffer(
            [multiply_extents(list(buffer.shape))],
            buffer.dtype,
            name=f"{buffer.name}_flat",
            data=buffer.data,
        )
        self.views[buffer] = view
        self.prelude.append(tirx.DeclBuffer(view, data=buffer.data))
        return view

    def scratch(self, buffer: Any, scope: str = "global") -> Any:
        """A flat allocation in place of a local buffer."""
        view = tirx.decl_buffer(
            [multiply_extents(list(buffer.shape))],
            buffer.dtype,
            name=f"{buffer.name}_flat",
            scope=scope,
        )
        self.views[buffer] = view
        self.allocations.append(allocation(view))
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
    return replace(
        stage, axes=axes, buffer=flat.views[stage.buffer], indices=(offset,), value=value
    )


def stride(offset: Expr, var: Any) -> Expr | None:
    """By how much `offset` grows as `var` grows by one; None when that is not constant over the
    loop.
    """
    coefficients = tvm.sym.detect_linear_equation(offset, [var])
    return coefficients[0] if len(coefficients) == 2 else None


def mergeable(outer: Axis, inner: Axis, exprs: Sequence[Expr]) -> bool:
    """True if every access in `exprs` walks the two axes as if they were one, and nothing else
    depends on them.
    """
    analyzer = tvm.sym.Analyzer()
    for expr in exprs:
        for one in loads(expr):
            high, low = stride(one.indices[0], outer.var), stride(one.indices[0], inner.var)
            if (
                high is None
                or low is None
                or not analyzer.can_prove_equal(high, low * inner.extent)
            ):
                return False
        if any(
            node.same_as(outer.var) or node.same_as(inner.var)
            for node in nodes(expr, into_loads=False)
        ):
            return False
    return True


def merge(
    axes: tuple[Axis, ...], exprs: Sequence[Expr]
) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
    """Neighbouring axes of one kind that every access walks as one become one; `exprs` follow.
    Accesses are flat.
    """
    exprs = tuple(exprs)
    position = len(axes) - 2
    while position >= 0:
        outer, inner = axes[position : position + 2]
        if outer.reduce == inner.reduce and mergeable(outer, inner, exprs):
            merged = Axis(
                tirx.Var(inner.var.name, "int64"),
                multiply_extents([outer.extent, inner.extent]),
                inner.reduce,
            )
            axes = (*axes[:position], merged, *axes[position + 2 :])
            table = {outer.var: const(0), inner.var: merged.var}
            exprs = tuple(substitute_accesses(expr, table, analyzer_for(axes)) for expr in exprs)
        position -= 1
    return axes, exprs


def substitute_accesses(expr: Expr, table: Mapping[Any, Expr], analyzer: Any) -> Expr:
    """`expr` with variables replaced and the offsets of its loads simplified."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad):
            return load(node.source, [analyzer.simplify(substitute(node.indices[0], table))])
        return table.get(node) if isinstance(node, tvm.ir.Var) else None

    return rewrite(expr, visit)


def merge_axes(stage: Stage) -> Stage:
    """The flat stage with neighbouring axes merged where it can be."""
    target = load(stage.buffer, [stage.indices[0]])
    init = () if stage.init is None else (stage.init,)
    axes, (target, value, *rest) = merge(stage.axes, (target, stage.value, *init))
    return replace(
        stage, axes=axes, indices=tuple(target.indices), value=value, init=rest[0] if rest else None
    )
