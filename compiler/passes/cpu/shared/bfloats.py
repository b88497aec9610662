"""bfloat16 operands of kernels: casts from float32, and dot products of two at a time.

With a bfloat16 dot product instruction values are stored in 16 bits each; without one, as float32
that bfloat16 represents exactly.
"""

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.shared.lanes import vector_index
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, emit, store, vectorize
from compiler.tir.exprs import Expr, const, load

PAIR_DTYPE = "int32"
"""The dtype that two bfloat16 are reinterpreted as."""

_DOT = "relaxd_pair_product"
_ROUND = "relaxd_round"


def cast_to_bfloat16(value: Expr) -> Expr:
    """The float32 value rounded to bfloat16; `operand_of` is the inverse."""
    return value.astype("bfloat16").astype("float32")


def is_bfloat16_cast(value: Any) -> bool:
    """True if `cast_to_bfloat16` returned the value."""
    return (
        isinstance(value, prim.Cast)
        and isinstance(value.value, prim.Cast)
        and str(value.value.ty.dtype) == "bfloat16"
    )


def operand_of(value: Any) -> Expr:
    """The argument of the call of `cast_to_bfloat16` that returned the value."""
    return value.value.value


def storage_dtype(unit: VectorUnit) -> str:
    """The dtype that `store_bfloat16` writes."""
    return "float32" if unit.bfloat16_dot is None else "uint16"


def store_bfloat16(
    target: Any, index: Expr, width: int, unit: VectorUnit, value: Callable[[Expr], Expr]
) -> None:
    """Emit target[index + lane] = `value(lane)` rounded to bfloat16, ties to even, for `width`
    lanes.
    """
    if unit.bfloat16_dot is None:
        with vectorize(width) as lane:
            store(target, _round_to_nearest(value(lane)), index + lane)
        return
    # By way of a buffer, which LLVM turns into a register: the instruction takes whole vectors.
    piece = alloc([width], "float32", "piece")
    with vectorize(width) as lane:
        store(piece, value(lane), lane)
    floats = load(piece, [vector_index(width)])
    bits = tirx.call_pure_extern(_vector_of("uint16", width), f"{_ROUND}{width}", floats)
    emit(tirx.BufferStore(target, bits, [vector_index(width, index)]))


def _round_to_nearest(value: Expr) -> Expr:
    """The nearest float32 that bfloat16 represents exactly, ties to even."""
    u32 = "uint32"
    bits = tirx.reinterpret(u32, value)
    odd = (bits >> tirx.const(16, u32)) & tirx.const(1, u32)
    near = bits + tirx.const(0x7FFF, u32) + odd
    # Rounding might carry a NaN into the sign.
    near = tirx.Select(value == value, near, tirx.const(0x7FC00000, u32))
    return tirx.reinterpret("float32", near & tirx.const(0xFFFF0000, u32))


def load_pair(numbers: Any, index: Expr) -> Expr:
    """Two neighbouring values that `store_bfloat16` wrote, as one integer."""
    return tirx.reinterpret(PAIR_DTYPE, load(numbers, [vector_index(2, index)]))


def load_vector(buffer: Any, index: Expr, lanes: int) -> Expr:
    """A vector of `lanes` elements of the buffer from `index` on."""
    return load(buffer, [vector_index(lanes, index)])


def add_dot(acc: Any, index: int, vector: Expr, pair: Expr, lanes: int) -> None:
    """Emit acc[index + lane] += the dot product of the lane's pair in `vector` and `pair`."""
    lane_indices = vector_index(lanes, index)
    total = load(acc, [lane_indices])
    pairs = prim.Broadcast(pair, lanes)
    result = tirx.call_pure_extern(_vector_of("float32", lanes), _DOT, total, vector, pairs)
    emit(tirx.BufferStore(acc, result, [lane_indices]))


def with_instructions(body: Any, unit: VectorUnit) -> Any:
    """Attach the functions that the kernel calls, as LLVM IR: LLVM takes no vectors of bfloat16
    from TIR.
    """
    if unit.bfloat16_dot is None:
        return body
    lanes = unit.lanes(32)
    widths = [1 << power for power in range(lanes.bit_length())]
    code = "".join([_dot_code(unit.bfloat16_dot, lanes), *map(_cast_code, widths)])
    return tirx.AttrStmt(const(0), "pragma_import_llvm", code, body)


def _dot_code(intrinsic: str, lanes: int) -> str:
    floats, integers, pairs = f"<{lanes} x float>", f"<{lanes} x i32>", f"<{2 * lanes} x bfloat>"
    return f"""
declare {floats} @{intrinsic}({floats}, {pairs}, {pairs})
define {floats} @{_DOT}({floats} %total, {integers} %left, {integers} %right) alwaysinline {{
  %x = bitcast {integers} %left to {pairs}
  %y = bitcast {integers} %right to {pairs}
  %sum = call {floats} @{intrinsic}({floats} %total, {pairs} %x, {pairs} %y)
  ret {floats} %sum
}}
"""


def _cast_code(width: int) -> str:
    """A function that casts `width` float32; one instruction where there are dot products."""
    floats, bfloats, bits = (
        kind if width == 1 else f"<{width} x {kind}>" for kind in ("float", "bfloat", "i16")
    )
    return f"""
define {bits} @{_ROUND}{width}({floats} %value) alwaysinline {{
  %near = fptrunc {floats} %value to {bfloats}
  %bits = bitcast {bfloats} %near to {bits}
  ret {bits} %bits
}}
"""


def _vector_of(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"
