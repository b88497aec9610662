"""Numbers of bfloat16 in kernels: float32 rounded to it, and sums of products of pairs.

With an instruction for pairs, numbers are held in 16 bits each and are multiplied two at a time;
without one, as float32 that bfloat16 holds exactly.
"""

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, emit, store, vectorize
from compiler.tir.exprs import Expr, const, load

HELD = "int32"
"""What holds a pair."""

_PRODUCT = "relaxd_pair_product"
_ROUND = "relaxd_round"


def rounded(value: Expr) -> Expr:
    """The float32 rounded to bfloat16, which `operand_of` finds again."""
    return value.astype("bfloat16").astype("float32")


def is_rounded(value: Any) -> bool:
    """Whether `rounded` made the value."""
    return (
        isinstance(value, prim.Cast)
        and isinstance(value.value, prim.Cast)
        and str(value.value.ty.dtype) == "bfloat16"
    )


def operand_of(value: Any) -> Expr:
    """What `rounded` was given."""
    return value.value.value


def held_as(unit: VectorUnit) -> str:
    """The dtype of numbers that `store_rounded` writes."""
    return "float32" if unit.bfloat16_dot is None else "uint16"


def store_rounded(
    target: Any, place: Expr, width: int, unit: VectorUnit, value: Callable[[Expr], Expr]
) -> None:
    """target[place + lane] = the nearest bfloat16 of `value(lane)` for `width` lanes, even ones
    where two are equally near.
    """
    if unit.bfloat16_dot is None:
        with vectorize(width) as lane:
            store(target, _nearest(value(lane)), place + lane)
        return
    # By way of a buffer, which LLVM turns into a register: the instruction takes whole vectors.
    piece = alloc([width], "float32", "piece")
    with vectorize(width) as lane:
        store(piece, value(lane), lane)
    whole = load(piece, [_lanes_from(const(0), width)])
    made = tirx.call_pure_extern(_vector_of("uint16", width), f"{_ROUND}{width}", whole)
    emit(tirx.BufferStore(target, made, [_lanes_from(place, width)]))


def _nearest(value: Expr) -> Expr:
    """The float32 that bfloat16 holds exactly and that is nearest."""
    whole = "uint32"
    bits = tirx.reinterpret(whole, value)
    odd = (bits >> tirx.const(16, whole)) & tirx.const(1, whole)
    near = bits + tirx.const(0x7FFF, whole) + odd
    # Rounding might carry a NaN into the sign.
    near = tirx.Select(value == value, near, tirx.const(0x7FC00000, whole))
    return tirx.reinterpret("float32", near & tirx.const(0xFFFF0000, whole))


def pair_at(numbers: Any, place: Expr) -> Expr:
    """Two neighbours of `store_rounded` as one integer."""
    return tirx.reinterpret(HELD, load(numbers, [_lanes_from(place, 2)]))


def vector_at(buffer: Any, place: Expr, lanes: int) -> Expr:
    """As many elements of the buffer as there are lanes."""
    return load(buffer, [_lanes_from(place, lanes)])


def add_product(acc: Any, place: int, vector: Expr, pair: Expr, lanes: int) -> None:
    """Adds to acc[place + lane] the product of lane's pair of `vector` and the one `pair`."""
    where = _lanes_from(const(place), lanes)
    total = load(acc, [where])
    both = prim.Broadcast(pair, lanes)
    result = tirx.call_pure_extern(_vector_of("float32", lanes), _PRODUCT, total, vector, both)
    emit(tirx.BufferStore(acc, result, [where]))


def with_instructions(body: Any, unit: VectorUnit) -> Any:
    """The kernel with the functions that it calls: TIR has no bfloat16 in vectors that LLVM
    takes.
    """
    if unit.bfloat16_dot is None:
        return body
    lanes = unit.lanes(32)
    widths = [1 << power for power in range(lanes.bit_length())]
    code = "".join([_product_code(unit.bfloat16_dot, lanes), *map(_rounding_code, widths)])
    return tirx.AttrStmt(const(0), "pragma_import_llvm", code, body)


def _product_code(intrinsic: str, lanes: int) -> str:
    floats, integers, pairs = f"<{lanes} x float>", f"<{lanes} x i32>", f"<{2 * lanes} x bfloat>"
    return f"""
declare {floats} @{intrinsic}({floats}, {pairs}, {pairs})
define {floats} @{_PRODUCT}({floats} %total, {integers} %left, {integers} %right) alwaysinline {{
  %x = bitcast {integers} %left to {pairs}
  %y = bitcast {integers} %right to {pairs}
  %sum = call {floats} @{intrinsic}({floats} %total, {pairs} %x, {pairs} %y)
  ret {floats} %sum
}}
"""


def _rounding_code(width: int) -> str:
    """One instruction where there is one for pairs."""
    floats, narrow, bits = (
        kind if width == 1 else f"<{width} x {kind}>" for kind in ("float", "bfloat", "i16")
    )
    return f"""
define {bits} @{_ROUND}{width}({floats} %value) alwaysinline {{
  %near = fptrunc {floats} %value to {narrow}
  %bits = bitcast {narrow} %near to {bits}
  ret {bits} %bits
}}
"""


def _vector_of(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _lanes_from(place: Expr, lanes: int) -> Expr:
    return place if lanes == 1 else prim.Ramp(place, const(1), lanes)
