"""Functions of integer arithmetic in standard ONNX operators, which any ONNX runtime computes; the
importer has a program of its own for each (`compiler.ir.onnx.operators.fixed_point`).
"""

import onnx
from onnx import parser

DOMAIN = "relaxd.fixed_point"
_OPSET = 21

_REQUANTIZE = """
<domain: "relaxd.fixed_point", opset_import: ["": 21]>
Requantize (x, multiplier, exponent, zero, low, high) => (y)
{
    none = Constant <value_int: int = 0> ()
    one = Constant <value_int: int = 1> ()
    two = Constant <value_int: int = 2> ()
    half_unit = Constant <value_int: int = 1073741824> ()
    unit = Constant <value_int: int = 2147483648> ()
    factor = Cast <to: int = 7> (multiplier)
    shift = Cast <to: int = 7> (exponent)
    minus = Neg (shift)
    left = Max (shift, none)
    right = Max (minus, none)
    up = Pow (two, left)
    down = Pow (two, right)
    wide = Cast <to: int = 7> (x)
    raised = Mul (wide, up)
    product = Mul (raised, factor)
    moved = Add (product, half_unit)
    rest = Mod (moved, unit)
    whole = Sub (moved, rest)
    high_word = Div (whole, unit)
    half = Div (down, two)
    is_below = Less (high_word, none)
    is_right = Greater (right, none)
    is_moved = And (is_below, is_right)
    correction = Cast <to: int = 7> (is_moved)
    centred = Add (high_word, half)
    corrected = Sub (centred, correction)
    last = Mod (corrected, down)
    even = Sub (corrected, last)
    scaled = Div (even, down)
    wide_zero = Cast <to: int = 7> (zero)
    shifted = Add (scaled, wide_zero)
    least = Cast <to: int = 7> (low)
    most = Cast <to: int = 7> (high)
    above = Max (shifted, least)
    within = Min (above, most)
    y = CastLike (within, zero)
}
"""
_REQUANTIZE_ONCE = """
<domain: "relaxd.fixed_point", opset_import: ["": 21]>
RequantizeOnce (x, multiplier, exponent, zero, low, high) => (y)
{
    two = Constant <value_int: int = 2> ()
    bits = Constant <value_int: int = 31> ()
    factor = Cast <to: int = 7> (multiplier)
    shift = Cast <to: int = 7> (exponent)
    right = Sub (bits, shift)
    down = Pow (two, right)
    wide = Cast <to: int = 7> (x)
    product = Mul (wide, factor)
    half = Div (down, two)
    moved = Add (product, half)
    rest = Mod (moved, down)
    even = Sub (moved, rest)
    scaled = Div (even, down)
    wide_zero = Cast <to: int = 7> (zero)
    shifted = Add (scaled, wide_zero)
    least = Cast <to: int = 7> (low)
    most = Cast <to: int = 7> (high)
    above = Max (shifted, least)
    within = Min (above, most)
    y = CastLike (within, zero)
}
"""
_ROUND_AWAY = """
<domain: "relaxd.fixed_point", opset_import: ["": 21]>
RoundAway (x) => (y)
{
    size = Abs (x)
    whole = Floor (size)
    rest = Sub (size, whole)
    half_float = Constant <value_float: float = 0.5> ()
    half = CastLike (half_float, x)
    is_up = GreaterOrEqual (rest, half)
    up = CastLike (is_up, x)
    rounded_size = Add (whole, up)
    sign = Sign (x)
    y = Mul (rounded_size, sign)
}
"""

FUNCTIONS: dict[str, onnx.FunctionProto] = {
    body.name: body
    for body in map(parser.parse_function, (_REQUANTIZE, _REQUANTIZE_ONCE, _ROUND_AWAY))
}
"""Requantize: integers by `multiplier * 2**(exponent - 31)`, rounded as
`compiler.ir.tflite.fixed_point` says, plus `zero`, within [low, high], in the dtype of `zero`; the
multiplier and the exponent have the rank of x, or none. RequantizeOnce: the same, rounded once,
halves upwards. RoundAway: halves away from zero.
"""
