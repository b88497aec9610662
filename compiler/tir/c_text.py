"""Expressions over extents, as C text over int64_t.

Sums, differences and products that may leave 64 bits, as far as the ranges of their dims tell, end
the call with an error (RD_ADD and its like in support.h); all others are plain C.
"""

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.errors import CodegenError
from compiler.tir.exprs import is_choice
from compiler.tir.ranges import Range, needs_more_bits
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.axis_forms import AxisForms, write_axis

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


def axis_expression(axis: Axis, names: Mapping[str, str]) -> str:
    """An axis of an input, given the name of every dim."""
    return write_axis(axis, names, _C_AXIS)


def variables(expr: Any) -> list[Any]:
    """The dims that an extent depends on."""
    return [] if isinstance(expr, int) else list(tirx.analysis.undefined_vars(expr))


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
