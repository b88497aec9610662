"""The form of the loops for operands of bfloat16: a step of the depth is a pair of neighbours.

The weights lie in panels as 32-bit integers, the first number of a pair in their lower half. Rows
of the left side are gathered and rounded, so that the innermost loop reads one pair of each: by an
instruction for pairs as two numbers of 16 bits, else as two of float32, for two multiply-adds.
"""

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import across, emit, steps, store
from compiler.tir.exprs import Expr, const, load

STAGE = "bfloat16_product"
"""Name of the program's stage, by which the kernel is found."""
HELD = "int32"
"""What holds a pair of weights."""

_UPPER = -(1 << 16)
_PRODUCT = "relaxd_pair_product"


def rounded(value: Expr) -> Expr:
    """The float32 rounded to bfloat16, which `operand_of` finds again."""
    return value.astype("bfloat16").astype("float32")


def operand_of(value: Expr) -> Expr:
    """What `rounded` was given."""
    return value.value.value


def weight_at(panels: Any, panel: Expr, k: Expr, first: Expr | int, lane: Expr) -> Expr:
    """Number `k` of a run whose pairs begin at row `first` of the panel, as float32."""
    pair = panels[panel, first + k // 2, lane]
    shifted = tirx.Select(k % 2 == 0, pair << tirx.const(16, HELD), pair & tirx.const(_UPPER, HELD))
    return tirx.reinterpret("float32", shifted)


def gathered(value: Expr, unit: VectorUnit) -> Expr:
    """A float32 as the innermost loop reads it: the bits of the nearest bfloat16, even ones where
    two are equally near, or their float32.
    """
    whole = "uint32"
    bits = tirx.reinterpret(whole, value)
    odd = (bits >> tirx.const(16, whole)) & tirx.const(1, whole)
    near = bits + tirx.const(0x7FFF, whole) + odd
    # Rounding might carry a NaN into the sign.
    near = tirx.Select(value == value, near, tirx.const(0x7FC00000, whole))
    if unit.pair_product is None:
        return tirx.reinterpret("float32", near & tirx.const(0xFFFF0000, whole))
    return (near >> tirx.const(16, whole)).astype("uint16")


def held_as(unit: VectorUnit) -> str:
    """The dtype of gathered numbers."""
    return "float32" if unit.pair_product is None else "uint16"


def with_instruction(body: Any, unit: VectorUnit) -> Any:
    """The kernel with the function that its innermost loop calls: TIR has no bfloat16 in vectors
    that LLVM takes.
    """
    if unit.pair_product is None:
        return body
    lanes = unit.lanes(32)
    floats, integers, pairs = f"<{lanes} x float>", f"<{lanes} x i32>", f"<{2 * lanes} x bfloat>"
    code = f"""
declare {floats} @{unit.pair_product}({floats}, {pairs}, {pairs})
define {floats} @{_PRODUCT}({floats} %total, {integers} %left, {integers} %right) alwaysinline {{
  %x = bitcast {integers} %left to {pairs}
  %y = bitcast {integers} %right to {pairs}
  %sum = call {floats} @{unit.pair_product}({floats} %total, {pairs} %x, {pairs} %y)
  ret {floats} %sum
}}
"""
    return tirx.AttrStmt(const(0), "pragma_import_llvm", code, body)


def emit_steps(
    acc: Any,
    unit: VectorUnit,
    left: tuple[Any, list[Expr]],
    right: tuple[Any, Expr],
    loop: tuple[Expr, int, int, Callable[[Expr], None] | None],
) -> None:
    """Add the products of a tile to `acc`, flat.

    left: the gathered numbers, and where each row begins, in pairs; right: the panels, and the
    first element; loop: the pairs, and the arguments of `steps`.
    """
    length, together, multiple, between = loop
    rows = len(left[1])
    width = int(acc.shape[0]) // rows
    for k in steps(length, together, multiple, between=between):
        if unit.pair_product is None:
            _emit_two(acc, unit, left, (right[0], right[1] + k * width), width, k)
        else:
            _emit_one(acc, unit, left, (right[0], right[1] + k * width), width, k)


def _emit_one(
    acc: Any, unit: VectorUnit, left: Any, right: tuple[Any, Expr], width: int, k: Expr
) -> None:
    """One step by one instruction for each vector."""
    lanes, (numbers, starts) = unit.lanes(32), left
    firsts = range(0, width, lanes)
    weights = [_vector(right[0], right[1] + first, lanes) for first in firsts]
    for row, start in enumerate(starts):
        two = load(numbers, [prim.Ramp((start + k) * 2, const(1), 2)])
        pair = prim.Broadcast(tirx.reinterpret(HELD, two), lanes)
        for first, weight in zip(firsts, weights, strict=True):
            place = prim.Ramp(const(row * width + first), const(1), lanes)
            total = load(acc, [place])
            result = tirx.call_pure_extern(f"float32x{lanes}", _PRODUCT, total, weight, pair)
            emit(tirx.BufferStore(acc, result, [place]))


def _vector(buffer: Any, place: Expr, lanes: int) -> Expr:
    return load(buffer, [prim.Ramp(place, const(1), lanes)])


def _emit_two(
    acc: Any, unit: VectorUnit, left: Any, right: tuple[Any, Expr], width: int, k: Expr
) -> None:
    """One step by two multiply-adds for each vector."""
    numbers, starts = left
    for odd in (0, 1):
        for row, start in enumerate(starts):
            for lane in across(width, unit.lanes(32)):
                pair = load(right[0], [right[1] + lane])
                bits = pair & tirx.const(_UPPER, HELD) if odd else pair << tirx.const(16, HELD)
                weight = tirx.reinterpret("float32", bits)
                number = load(numbers, [(start + k) * 2 + odd])
                place = const(row * width) + lane
                store(acc, load(acc, [place]) + number * weight, place)
