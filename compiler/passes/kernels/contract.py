"""Reading a program as one contraction: rows x columns, summed products, and what is done to each result."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.kernels.nest import combine_of
from compiler.passes.tir.exprs import Expr, as_int, const, dtype_of, load, loads, nodes, rewrite, substitute, uses
from compiler.passes.tir.flat import Flattener, analyzer_for, flatten_stage, merge, stride
from compiler.passes.tir.loops import Stmt
from compiler.passes.tir.stages import Axis, Program, Stage


@dataclass(frozen=True)
class Output:
    """`value`, in terms of the sum, goes to `target`, a flat load of the place."""

    target: Any
    value: Expr


@dataclass(frozen=True)
class Contraction:
    """outputs(sum over `reduce` of left * right) for `batch` x `rows` x `column`.

    left does not depend on `column`, right not on `rows`; `total` is a one-element buffer that stands for the sum;
    `bulk` says that many rows are the rule, as in the planes of an image.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    column: Axis
    reduce: tuple[Axis, ...]
    left: Expr
    right: Any
    init: Expr
    total: Any
    outputs: tuple[Output, ...]
    prelude: tuple[Stmt, ...]
    bulk: bool = False

    @property
    def depth(self) -> int | None:
        """The length of the sum if it is fixed."""
        size = 1
        for axis in self.reduce:
            extent = as_int(axis.extent)
            if extent is None:
                return None
            size *= extent
        return size


def _anchor(program: Program) -> Stage | None:
    found = [stage for stage in program.stages if stage.init is not None]
    if len(found) != 1 or not program.stages[0].buffer.same_as(found[0].buffer):
        return None
    anchor = found[0]
    plain = all(index.same_as(axis.var) for index, axis in zip(anchor.indices, anchor.spatial, strict=False))
    return anchor if plain and len(anchor.indices) == len(anchor.spatial) and dtype_of(anchor.value) == "float32" else None


def _at_anchor(stage: Stage, anchor: Stage, total: Any) -> Stage | None:
    """The later stage over the anchor's axes, the anchor's result replaced by `total`."""
    reads = [one for one in loads(stage.value) if one.source.same_as(anchor.buffer)]
    table: dict[Any, Expr] = {}
    for one in reads:
        for index, axis in zip(one.indices, anchor.axes, strict=False):
            if isinstance(index, tvm.ir.Var) and any(index.same_as(own.var) for own in stage.axes):
                if index in table and not table[index].same_as(axis.var):
                    return None
                table[index] = axis.var
            elif as_int(index) is None or as_int(axis.extent) != 1:
                return None
    if not reads or stage.reduced or any(own.var not in table and as_int(own.extent) != 1 for own in stage.axes):
        return None
    if len({var.__hash__() for var in table.values()}) != len(table):
        return None
    table = {**{own.var: const(0) for own in stage.axes}, **table}

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tvm.ir.TensorLoad) and node.source.same_as(anchor.buffer):
            return load(total, [const(0)])
        return table.get(node) if isinstance(node, tvm.ir.Var) else None

    return Stage(stage.name, stage.buffer, anchor.spatial, tuple(substitute(i, table) for i in stage.indices), rewrite(stage.value, visit))


def _factors(term: Expr, anchor: Stage) -> list[tuple[Expr, Expr]]:
    if not isinstance(term, prim.Mul):
        return []
    return [(term.a, term.b), (term.b, term.a)]


def read_contraction(program: Program) -> Contraction | None:
    """The program as a contraction, None if it is none."""
    anchor = _anchor(program)
    if anchor is None:
        return None
    combine = combine_of(anchor)
    if combine is None or combine.node is not prim.Add:
        return None
    total = tirx.decl_buffer([const(1)], "float32", name="total", scope="local")
    later = [_at_anchor(stage, anchor, total) for stage in program.stages[1:]]
    if any(stage is None for stage in later):
        return None
    is_result = any(anchor.buffer.same_as(out) for out in program.outputs)
    if is_result:
        later.insert(0, Stage(anchor.name, anchor.buffer, anchor.spatial, anchor.indices, load(total, [const(0)])))
    written = [stage.buffer for stage in later if stage is not None]
    if any(one.source.same_as(buffer) for stage in later if stage is not None for one in loads(stage.value) for buffer in written):
        return None
    flat = Flattener()
    for buffer in program.params:
        flat.parameter(buffer)
    flat.views[anchor.buffer] = flat.views.get(anchor.buffer, total)
    parts = [flatten_stage(stage, flat) for stage in later if stage is not None]
    for left, right in _factors(combine.term, anchor):
        found = _classify(anchor, left, right, parts, flat, total)
        if found is not None:
            return found
    return None


def _classify(anchor: Stage, left: Expr, right: Expr, parts: list[Stage], flat: Flattener, total: Any) -> Contraction | None:
    ones = {axis.var: const(0) for axis in anchor.axes if as_int(axis.extent) == 1}
    axes = tuple(axis for axis in anchor.axes if axis.var not in ones)
    analyzer = analyzer_for(axes)
    left, right = (flat.value(substitute(side, ones), analyzer) for side in (left, right))
    if not isinstance(right, tvm.ir.TensorLoad):
        return None
    exprs = [left, right, anchor.init]
    for part in parts:
        exprs += [load(part.buffer, list(part.indices)), part.value]
    axes, merged = merge(axes, exprs)
    left, right, init, *rest = merged
    outputs = tuple(Output(rest[i], rest[i + 1]) for i in range(0, len(rest), 2))
    spatial = [axis for axis in axes if not axis.reduce]
    if not spatial:
        return None
    columns = [axis for axis in spatial if not uses(left, axis.var) and uses(right, axis.var)]
    batch = tuple(axis for axis in spatial if uses(left, axis.var) and uses(right, axis.var))
    rows = tuple(axis for axis in spatial if not uses(right, axis.var))
    if len(columns) != 1 or any(as_int(stride(out.target.indices[0], columns[0].var)) != 1 for out in outputs):
        return None
    reduce = tuple(axis for axis in axes if axis.reduce)
    return Contraction(batch, rows, columns[0], reduce, left, right, init, total, outputs, tuple(flat.prelude), len(anchor.spatial) >= 4)


def packed_width(contraction: Contraction) -> int | None:
    """NR where the right side is stored in panels [columns/NR, depth, NR], else None."""
    offset, column = contraction.right.indices[0], contraction.column.var
    widths = {as_int(node.b) for node in nodes(offset) if isinstance(node, prim.FloorMod) and node.a.same_as(column)}
    if len(widths) != 1:
        return None
    width = widths.pop()
    expected, first = width, substitute(offset, {column: const(0)})
    for axis in reversed(contraction.reduce):
        step, extent = stride(first, axis.var), as_int(axis.extent)
        if step is None or extent is None or expected is None or as_int(step) != expected:
            return None
        expected *= extent
    return width
