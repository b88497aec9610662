"""Converts TVM expressions of dims to the contract's axis expressions, and back."""

import ast
from collections.abc import Callable
from typing import Any

from tvm import tirx

from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.names import name_of, quote_name

_TEXT = {tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "//", tirx.FloorMod: "%"}
_CALLS = {tirx.Min: "min", tirx.Max: "max"}
_EVALUATE = {
    ast.Add: ex.add,
    ast.Sub: ex.sub,
    ast.Mult: ex.mul,
    ast.FloorDiv: ex.floordiv,
    ast.Mod: ex.floormod,
}


def axis_of(extent: Extent) -> Axis | None:
    """The axis expression of an extent; None if it uses an operator that the contract lacks."""
    text = _spell(extent)
    return None if text is None else Axis(text)


def _spell(extent: Extent) -> str | None:
    node: Any = ex.plain(extent)
    if isinstance(node, int):
        return str(node)
    if isinstance(node, tirx.Var):
        return quote_name(name_of(str(node.name)))
    sign, call = _TEXT.get(type(node)), _CALLS.get(type(node))
    if sign is None and call is None:
        return None
    a, b = _spell(node.a), _spell(node.b)
    if a is None or b is None:
        return None
    return f"({a} {sign} {b})" if sign else f"{call}({a}, {b})"


def extent_of(axis: Axis, dim: Callable[[str], Extent]) -> Extent:
    """The extent of an axis expression; `dim` gives the extent of a named dim."""

    def build(node: ast.expr) -> Extent:
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.Name(id=name):
                return dim(name)
            case ast.UnaryOp(operand=operand):
                return ex.sub(0, build(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _EVALUATE[type(op)](build(left), build(right))
            case ast.Call(func=ast.Name(id=name), args=args):
                fold = ex.minimum if name == "min" else ex.maximum
                result = build(args[0])
                for arg in args[1:]:
                    result = fold(result, build(arg))
                return result
        raise AssertionError(ast.dump(node))

    return build(axis.tree)
