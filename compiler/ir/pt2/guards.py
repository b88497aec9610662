"""Conditions on sizes that torch assumed when it exported a program: every run checks them.

A guard is a comparison such as `2*L['x'].size()[1] <= L['x'].size()[0]`; it is read by a grammar of
its own, and never evaluated as Python.
"""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.errors import ImportFailed
from compiler.ir.graph.signature import identifier
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

_ARITHMETIC = {
    ast.Add: ex.add, ast.Sub: ex.sub, ast.Mult: ex.mul, ast.FloorDiv: ex.floordiv,
    ast.Mod: ex.floormod,
}  # fmt: skip
_COMPARISONS = {
    ast.Eq: ex.equal, ast.NotEq: ex.not_equal, ast.LtE: ex.less_equal, ast.Lt: ex.less,
}  # fmt: skip


def condition_of(guard: str, shapes: Mapping[str, Sequence[Extent]]) -> Any:
    """The condition over the extents of the inputs; raises ImportFailed for another kind of
    guard.
    """
    try:
        tree = ast.parse(guard, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _unknown(guard) from error
    return _condition(tree, guard, shapes)


def _condition(node: ast.expr, guard: str, shapes: Mapping[str, Sequence[Extent]]) -> Any:
    match node:
        case ast.BoolOp(op=op, values=values):
            fold = ex.both if isinstance(op, ast.And) else ex.either
            parts = [_condition(value, guard, shapes) for value in values]
            result = parts[0]
            for part in parts[1:]:
                result = fold(result, part)
            return result
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ex.negate(_condition(operand, guard, shapes))
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_extent(side, guard, shapes) for side in (left, *others)]
            result = True
            for sign, one, other in zip(ops, sides, sides[1:], strict=False):
                result = ex.both(result, _compare(sign, one, other, guard))
            return result
    raise _unknown(guard)


def _compare(op: ast.cmpop, lhs: Extent, rhs: Extent, guard: str) -> Any:
    if isinstance(op, (ast.GtE, ast.Gt)):
        return (ex.less_equal if isinstance(op, ast.GtE) else ex.less)(rhs, lhs)
    if type(op) not in _COMPARISONS:
        raise _unknown(guard)
    return _COMPARISONS[type(op)](lhs, rhs)


def _extent(node: ast.expr, guard: str, shapes: Mapping[str, Sequence[Extent]]) -> Extent:
    match node:
        case ast.Constant(value=int(number)) if type(number) is int:
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ex.sub(0, _extent(operand, guard, shapes))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            one, other = (_extent(side, guard, shapes) for side in (left, right))
            return _ARITHMETIC[type(op)](one, other)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[first, *rest]):
            result = _extent(first, guard, shapes)
            for item in rest:
                fold = ex.minimum if name == "min" else ex.maximum
                result = fold(result, _extent(item, guard, shapes))
            return result
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=source, attr="size"), args=[]),
            slice=ast.Constant(value=int(axis)),
        ):
            shape = shapes.get(_input(source, guard))
            if shape is not None and 0 <= axis < len(shape):
                return shape[axis]
    raise _unknown(guard)


def _input(node: ast.expr, guard: str) -> str:
    """The input's name of `L['d']['a']`: its keys, joined as torch joins them."""
    keys: list[str] = []
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        if isinstance(node, ast.Attribute):
            keys.insert(0, node.attr)
        elif isinstance(node.slice, ast.Constant):
            keys.insert(0, identifier(str(node.slice.value)) if keys else str(node.slice.value))
        node = node.value
    if not (isinstance(node, ast.Name) and node.id == "L"):
        raise _unknown(guard)
    return "_".join(keys)


def _unknown(guard: str) -> ImportFailed:
    return ImportFailed(
        f"the program holds only where {guard[:200]!r}, which cannot be checked",
        reason="pt2_guard",
        hint="export it so that sizes are compared with sizes and numbers alone",
    )
