"""Reading a program as one contraction: rows x columns, summed products, and what is done to each
result.
"""

from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.reduction import Anchored, Epilogue, Output, read_anchored
from compiler.tir.exprs import Expr, as_int, const, dtype_of, nodes, substitute, uses
from compiler.tir.flat import analyzer_for, merge, stride
from compiler.tir.loops import Stmt
from compiler.tir.stages import Axis, Program


@dataclass(frozen=True)
class Contraction:
    """epilogue(sum over `reduce` of left * right) for `batch` x `rows` x `column`.

    left does not depend on `column`, right not on `rows`; `bulk` says that many rows are the rule,
    as in the planes of an image.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    column: Axis
    reduce: tuple[Axis, ...]
    left: Expr
    right: Any
    init: Expr
    epilogue: Epilogue
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
    if (
        anchored is None
        or anchored.combine.node is not prim.Add
        or dtype_of(anchored.anchor.value) != "float32"
    ):
        return None
    for left, right in _factors(anchored.combine.term):
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
    sides = [side for out in anchored.epilogue.outputs for side in (out.target, out.value)]
    axes, merged = merge(axes, [left, right, anchor.init, *sides])
    left, right, init, *rest = merged
    outputs = tuple(map(Output, rest[::2], rest[1::2]))
    spatial = [axis for axis in axes if not axis.reduce]
    if not spatial:
        return None
    columns = [axis for axis in spatial if not uses(left, axis.var) and uses(right, axis.var)]
    batch = tuple(axis for axis in spatial if uses(left, axis.var) and uses(right, axis.var))
    rows = tuple(axis for axis in spatial if not uses(right, axis.var))
    if len(columns) != 1 or any(
        as_int(stride(out.target.indices[0], columns[0].var)) != 1 for out in outputs
    ):
        return None
    reduce = tuple(axis for axis in axes if axis.reduce)
    epilogue = replace(anchored.epilogue, outputs=outputs)
    return Contraction(
        batch,
        rows,
        columns[0],
        reduce,
        left,
        right,
        init,
        epilogue,
        tuple(flat.prelude),
        len(anchor.spatial) >= 4,
    )


def packed_width(contraction: Contraction) -> int | None:
    """NR where the right side is stored in panels [columns/NR, depth, NR], else None."""
    offset, column = contraction.right.indices[0], contraction.column.var
    widths = {
        as_int(node.b)
        for node in nodes(offset)
        if isinstance(node, prim.FloorMod) and node.a.same_as(column)
    }
    first = substitute(offset, {column: const(0)})
    width = widths.pop() if len(widths) == 1 else _one_panel(contraction, first)
    expected = width
    for axis in reversed(contraction.reduce):
        extent = as_int(axis.extent)
        if extent is None or expected is None or as_int(stride(first, axis.var)) != expected:
            return None
        expected *= extent
    return width


def _one_panel(contraction: Contraction, first: Expr) -> int | None:
    """The width of a panel that holds every column, and so is read without a remainder."""
    depth, step = (
        contraction.depth,
        as_int(stride(contraction.right.indices[0], contraction.column.var)),
    )
    if step != 1 or not contraction.reduce or depth is None:
        return None
    width = as_int(stride(first, contraction.reduce[-1].var))
    return (
        None
        if width is None or as_int(contraction.right.source.shape[0]) != width * depth
        else width
    )
