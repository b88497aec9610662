"""Functions of integer arithmetic in standard ONNX operators, which any ONNX runtime computes; the
importer has a program of its own for each (`compiler.ir.onnx.operators.fixed_point`).
"""

import onnx
from onnx import parser

DOMAIN = "relaxd.fixed_point"
_OPSET = 21

# ONNX Runtime's Min, Max and Clip of int64 are wrong beyond 32 bits: comparisons are not.
_REQUANTIZE = """
<domain: "relaxd.fixed_point", opset_import: ["": 21]>
{name} (x, multiplier, exponent, zero, low, high) => (y)
{{
    two = Constant <value_int: int = 2> ()
    factor = Cast <to: int = 7> (multiplier)
    shift = Cast <to: int = 7> (exponent)
    wide = Cast <to: int = 7> (x)
{scale}
    half = Div (down, two)
{add_half}
    rest = Mod (moved, down)
    even = Sub (moved, rest)
    scaled = Div (even, down)
    wide_zero = Cast <to: int = 7> (zero)
    shifted = Add (scaled, wide_zero)
    least = Cast <to: int = 7> (low)
    most = Cast <to: int = 7> (high)
    is_high = Greater (shifted, most)
    is_low = Less (shifted, least)
    capped = Where (is_high, most, shifted)
    within = Where (is_low, least, capped)
    y = CastLike (within, zero)
}}
"""
_TWICE = _REQUANTIZE.format(
    name="Requantize",
    scale="""
    none = Constant <value_int: int = 0> ()
    half_unit = Constant <value_int: int = 1073741824> ()
    unit = Constant <value_int: int = 2147483648> ()
    minus = Neg (shift)
    left = Max (shift, none)
    right = Max (minus, none)
    up = Pow (two, left)
    down = Pow (two, right)
    beyond = Constant <value_int: int = 4294967295> ()
    below = Neg (beyond)
    shifted_left = Mul (wide, up)
    is_over = Greater (shifted_left, beyond)
    is_under = Less (shifted_left, below)
    bounded = Where (is_over, beyond, shifted_left)
    raised = Where (is_under, below, bounded)
    product = Mul (raised, factor)
    rounded = Add (product, half_unit)
    low_bits = Mod (rounded, unit)
    whole = Sub (rounded, low_bits)
    high_word = Div (whole, unit)
""",
    add_half="""
    is_below = Less (high_word, none)
    is_right = Greater (right, none)
    is_moved = And (is_below, is_right)
    correction = Cast <to: int = 7> (is_moved)
    centred = Add (high_word, half)
    moved = Sub (centred, correction)
""",
)
_ONCE = _REQUANTIZE.format(
    name="RequantizeOnce",
    scale="""
    bits = Constant <value_int: int = 31> ()
    right = Sub (bits, shift)
    down = Pow (two, right)
    product = Mul (wide, factor)
""",
    add_half="    moved = Add (product, half)",
)
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
    body.name: body for body in map(parser.parse_function, (_TWICE, _ONCE, _ROUND_AWAY))
}
"""Requantize: integers by `multiplier * 2**(exponent - 31)`, rounded as
`compiler.ir.tflite.fixed_point` says, plus `zero`, within [low, high], in the dtype of `zero`; the
multiplier and the exponent have the rank of x, or none. RequantizeOnce: the same, rounded once,
halves upwards. RoundAway: halves away from zero.
"""
