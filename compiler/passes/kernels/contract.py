"""Reading a program as one contraction: rows x columns, summed products, and what is done to each result."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.passes.kernels.anchor import Anchored, read_anchored
from compiler.passes.kernels.nest import combine_of
from compiler.passes.tir.exprs import Expr, as_int, const, dtype_of, load, nodes, substitute, uses
from compiler.passes.tir.flat import analyzer_for, merge, stride
from compiler.passes.tir.loops import Stmt
from compiler.passes.tir.stages import Axis, Program


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


def _factors(term: Expr) -> list[tuple[Expr, Expr]]:
    if not isinstance(term, prim.Mul):
        return []
    return [(term.a, term.b), (term.b, term.a)]


def read_contraction(program: Program) -> Contraction | None:
    """The program as a contraction, None if it is none."""
    anchored = read_anchored(program)
    combine = None if anchored is None else combine_of(anchored.anchor)
    if anchored is None or combine is None or combine.node is not prim.Add or dtype_of(anchored.anchor.value) != "float32":
        return None
    for left, right in _factors(combine.term):
        found = _classify(anchored, left, right)
        if found is not None:
            return found
    return None


def _classify(anchored: Anchored, left: Expr, right: Expr) -> Contraction | None:
    anchor, flat = anchored.anchor, anchored.flat
    ones = {axis.var: const(0) for axis in anchor.axes if as_int(axis.extent) == 1}
    axes = tuple(axis for axis in anchor.axes if axis.var not in ones)
    analyzer = analyzer_for(axes)
    left, right = (flat.value(substitute(side, ones), analyzer) for side in (left, right))
    if not isinstance(right, tvm.ir.TensorLoad):
        return None
    exprs = [left, right, anchor.init]
    for part in anchored.parts:
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
    return Contraction(
        batch, rows, columns[0], reduce, left, right, init, anchored.total, outputs, tuple(flat.prelude), len(anchor.spatial) >= 4
    )


def packed_width(contraction: Contraction) -> int | None:
    """NR where the right side is stored in panels [columns/NR, depth, NR], else None."""
    offset, column = contraction.right.indices[0], contraction.column.var
    widths = {as_int(node.b) for node in nodes(offset) if isinstance(node, prim.FloorMod) and node.a.same_as(column)}
    first = substitute(offset, {column: const(0)})
    width = widths.pop() if len(widths) == 1 else _one_panel(contraction, first)
    expected = width
    for axis in reversed(contraction.reduce):
        step, extent = stride(first, axis.var), as_int(axis.extent)
        if step is None or extent is None or expected is None or as_int(step) != expected:
            return None
        expected *= extent
    return width


def _one_panel(contraction: Contraction, first: Expr) -> int | None:
    """The width of a panel that holds every column, and so is read without a remainder."""
    step = stride(contraction.right.indices[0], contraction.column.var)
    if step is None or as_int(step) != 1 or not contraction.reduce or contraction.depth is None:
        return None
    width = stride(first, contraction.reduce[-1].var)
    size = as_int(contraction.right.source.shape[0])
    return None if width is None or size is None or size != (as_int(width) or 0) * contraction.depth else as_int(width)
