"""Expressions over extents, as C text over int64_t.

Sums, differences and products that may leave 64 bits, as far as the ranges of their dims tell, end
the call with an error (RD_ADD and its like in support.h); all others are plain C.
"""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.errors import CodegenError
from compiler.tir.exprs import is_choice
from compiler.tir.ranges import Range, needs_more_bits
from relaxd.contract.dims.axes import Axis

C_TYPES = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
"""What holds an element or a scalar argument."""

_BINARY: dict[type, str] = {
    prim.Add: "({} + {})",
    prim.Sub: "({} - {})",
    prim.Mul: "({} * {})",
    prim.FloorDiv: "rd_floordiv({}, {})",
    prim.FloorMod: "rd_floormod({}, {})",
    prim.Div: "rd_truncdiv({}, {})",
    prim.Mod: "rd_truncmod({}, {})",
    prim.Min: "rd_min({}, {})",
    prim.Max: "rd_max({}, {})",
    prim.EQ: "({} == {})",
    prim.NE: "({} != {})",
    prim.LT: "({} < {})",
    prim.LE: "({} <= {})",
    prim.GT: "({} > {})",
    prim.GE: "({} >= {})",
    prim.And: "({} && {})",
    prim.Or: "({} || {})",
    prim.LShift: "({} << {})",
    prim.RShift: "({} >> {})",
    prim.BitwiseAnd: "({} & {})",
    prim.BitwiseOr: "({} | {})",
    prim.BitwiseXor: "({} ^ {})",
}


_CHECKED: dict[type, str] = {
    prim.Add: "RD_ADD({}, {})",
    prim.Sub: "RD_SUB({}, {})",
    prim.Mul: "RD_MUL({}, {})",
}
"""What stands for the operations whose result may need more than 64 bits."""


@dataclass(frozen=True)
class AxisForms:
    """How a language writes what axes are made of."""

    divide: str
    remainder: str
    minimum: str
    maximum: str
    number: Callable[[int], str] = str
    add: str = "({} + {})"
    subtract: str = "({} - {})"
    multiply: str = "({} * {})"

    def operator(self, node: ast.operator) -> str:
        """The form of an operation on two texts."""
        plain = {ast.Add: self.add, ast.Sub: self.subtract, ast.Mult: self.multiply}
        return plain.get(type(node)) or (
            self.divide if isinstance(node, ast.FloorDiv) else self.remainder
        )


_SMALL = 1 << 31


def number(value: int) -> str:
    """An integer constant."""
    if value == -(1 << 63):
        return "INT64_MIN"
    return str(value) if abs(value) < _SMALL else f"INT64_C({value})"


_C_AXIS = AxisForms(
    "rd_floordiv({}, {})",
    "rd_floormod({}, {})",
    "rd_min({}, {})",
    "rd_max({}, {})",
    number,
    *(_CHECKED[kind] for kind in (prim.Add, prim.Sub, prim.Mul)),
)


def expression(
    expr: Any, names: Mapping[Any, str], ranges: Mapping[Any, Range] | None = None
) -> str:
    """An extent, or a condition on extents; raises CodegenError for another expression.

    ranges: of its dims, any number where they have none; None where nothing is checked.
    """
    match expr:
        case int():
            return number(expr)
        case prim.IntImm():
            return number(int(expr.value))
        case prim.FloatImm():
            return repr(float(expr.value))
        case tvm.ir.Var():
            return names[expr]
        case prim.Cast():
            return expression(expr.value, names, ranges)
        case prim.Not():
            return f"(!{expression(expr.a, names, ranges)})"
        case prim.Select():
            parts = (expr.condition, expr.true_value, expr.false_value)
            return "({} ? {} : {})".format(*(expression(part, names, ranges) for part in parts))
        case tvm.ir.Call() if is_choice(expr):
            return "({} ? {} : {})".format(*(expression(arg, names, ranges) for arg in expr.args))
    form = _BINARY.get(type(expr), "")
    if not form:
        raise CodegenError(
            f"an extent is computed in a way that has no C form: {expr}", reason="extent"
        )
    if ranges is not None and type(expr) in _CHECKED and needs_more_bits(expr, ranges):
        form = _CHECKED[type(expr)]
    return form.format(*(expression(part, names, ranges) for part in (expr.a, expr.b)))


def axis_expression(axis: Axis, names: Mapping[str, str], forms: AxisForms = _C_AXIS) -> str:
    """An axis of an input, given the name of every dim."""
    return _axis(axis.tree, names, forms)


def _axis(node: ast.expr, names: Mapping[str, str], forms: AxisForms) -> str:
    match node:
        case ast.Constant(value=int(value)):
            return forms.number(value)
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(operand=operand):
            return f"(-{_axis(operand, names, forms)})"
        case ast.BinOp(left=left, op=op, right=right):
            texts = (_axis(side, names, forms) for side in (left, right))
            return forms.operator(op).format(*texts)
        case ast.Call(func=ast.Name(id=name), args=[first, *rest]):
            text = _axis(first, names, forms)
            form = forms.minimum if name == "min" else forms.maximum
            for other in rest:
                text = form.format(text, _axis(other, names, forms))
            return text
    raise AssertionError(ast.dump(node))


def variables(expr: Any) -> list[Any]:
    """The dims that an extent depends on."""
    return [] if isinstance(expr, int) else list(tirx.analysis.undefined_vars(expr))


def identifier(text: str) -> str:
    """The text with everything else than letters, digits and underscores replaced."""
    return re.sub(r"\W", "_", text, flags=re.ASCII)


def quote(text: str) -> str:
    """A string literal."""
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("?", "\\?")
    )
    return '"' + "".join(c if " " <= c <= "~" else _octal(c.encode()) for c in escaped) + '"'


def octets(content: bytes) -> str:
    """A string literal of these bytes, which a compiler reads faster than a list of numbers."""
    return f'"{_octal(content)}"'


def _octal(content: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in content)


def element_bytes(dtype: str) -> int:
    """Bytes that one element takes."""
    return max(int(tvm.DataType(dtype).bits) // 8, 1)
