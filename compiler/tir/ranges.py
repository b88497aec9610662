"""The rule for extents in a driver, and the ranges that decide where it needs a check.

Every dim of an input is from 0 to MOST_EXTENT, and every tensor has extents of 0 and more and takes
MOST_BYTES at most. What a run computes from the values of inputs may be anything: its sums and
products are checked where they are made, and a tensor's extents before memory is taken for it. A
call that breaks the rule ends with RELAXD_MEMORY or RELAXD_CHECK.
"""

import ast
from collections.abc import Iterable, Mapping
from typing import Any

import tvm
from tvm.ir.prim import expr as prim

from compiler.tir.exprs import as_int, children, is_choice
from relaxd.contract.dims.dims import Dim

Range = tuple[int, int]
"""The least and the greatest value."""

ANY: Range = (-(1 << 63), (1 << 63) - 1)
MOST_EXTENT = 1 << 40
"""As `compiler.ir.shapes.facts.UNBOUNDED`, by which import decides conditions on extents;
RD_MOST_EXTENT of support.h.
"""
MOST_BYTES = 1 << 47
"""What a process can address; RD_MOST_BYTES of support.h has less where addresses have 32 bits."""
OF_TENSORS: Range = (0, MOST_BYTES)
"""Of the extents of a tensor that exists."""

_AXES: dict[type, type] = {
    ast.Add: prim.Add,
    ast.Sub: prim.Sub,
    ast.Mult: prim.Mul,
    ast.FloorDiv: prim.FloorDiv,
    ast.Mod: prim.FloorMod,
}


def of_dim(dim: Dim) -> Range:
    """The range of a dim that bind has checked."""
    most = MOST_EXTENT if dim.highest is None else min(dim.highest, MOST_EXTENT)
    return min(dim.lowest, most), most


def of_axis(node: ast.expr, dims: Mapping[str, Range]) -> Range:
    """The range of an axis of an input, an expression of dims."""
    match node:
        case ast.Constant(value=int(value)):
            return value, value
        case ast.Name(id=name):
            return dims[name]
        case ast.BinOp(left=left, op=op, right=right):
            result = combine(_AXES[type(op)], of_axis(left, dims), of_axis(right, dims))
            return max(result[0], ANY[0]), min(result[1], ANY[1])
        case ast.Call(func=ast.Name(id=name), args=args):
            parts = [of_axis(arg, dims) for arg in args]
            choose = min if name == "min" else max
            return choose(low for low, _ in parts), choose(high for _, high in parts)
    return ANY


def range_of(expr: Any, ranges: Mapping[Any, Range]) -> Range:
    """The range of an extent, given those of its dims; anything where nothing is known."""
    low, high = _unclipped(expr, ranges)
    return max(low, ANY[0]), min(high, ANY[1])


def needs_more_bits(expr: Any, ranges: Mapping[Any, Range]) -> bool:
    """True where the result of an operation may leave 64 bits."""
    low, high = _unclipped(expr, ranges)
    return low < ANY[0] or high > ANY[1]


def _unclipped(expr: Any, ranges: Mapping[Any, Range]) -> Range:
    """The range of a result of operands that are in 64 bits."""
    value = as_int(expr)
    if value is not None:
        return value, value
    if isinstance(expr, tvm.ir.Var):
        return ranges.get(expr, ANY)
    if isinstance(expr, prim.Cast):
        return range_of(expr.value, ranges)
    if isinstance(expr, prim.Select) or is_choice(expr):
        (low, high), (least, greatest) = (range_of(part, ranges) for part in children(expr)[1:])
        return min(low, least), max(high, greatest)
    if isinstance(expr, prim.Not) or not hasattr(expr, "b"):
        return ANY
    return combine(type(expr), range_of(expr.a, ranges), range_of(expr.b, ranges))


def is_small(extents: Iterable[Range], item: int) -> bool:
    """True where a tensor of these extents keeps the rule whatever they are."""
    size = item
    for low, high in extents:
        if low < 0:
            return False
        size *= max(high, 1)
    return size <= MOST_BYTES


def combine(kind: type, lhs: Range, rhs: Range) -> Range:
    """The range of an operation's result, which may lie beyond 64 bits."""
    (low, high), (least, greatest) = lhs, rhs
    if kind is prim.Add:
        return low + least, high + greatest
    if kind is prim.Sub:
        return low - greatest, high - least
    if kind is prim.Mul:
        corners = [x * y for x in lhs for y in rhs]
        return min(corners), max(corners)
    if kind is prim.Min:
        return min(low, least), min(high, greatest)
    if kind is prim.Max:
        return max(low, least), max(high, greatest)
    if kind in (prim.FloorDiv, prim.Div):
        return _quotient(lhs, rhs)
    if kind in (prim.FloorMod, prim.Mod):
        return _remainder(kind, lhs, rhs)
    return (0, 1) if issubclass(kind, _CONDITIONS) else ANY


_CONDITIONS = (prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE, prim.And, prim.Or)


def _quotient(lhs: Range, rhs: Range) -> Range:
    if rhs[0] >= 1:
        corners = [x // y for x in lhs for y in rhs]
        # Rounded to zero, a negative quotient may be 0.
        return min(corners), max(*corners, 0)
    most = max(abs(lhs[0]), abs(lhs[1]))
    return -most, most


def _remainder(kind: type, lhs: Range, rhs: Range) -> Range:
    if rhs[0] < 1:
        most = max(abs(rhs[0]), abs(rhs[1]))
        return -most, most
    return (0 if kind is prim.FloorMod or lhs[0] >= 0 else 1 - rhs[1]), rhs[1] - 1
