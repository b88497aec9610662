"""Quantizes by a conversion that rounds and saturates, as ARM has it, one instruction in place of
two comparisons and a call: the Cortex-M4 has no other that rounds.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.exprs import as_int, dtype_of, op_name
from compiler.tir.loops import with_body


@dataclass(frozen=True)
class SaturateConversions(ProgramPass):
    """Writes round(v) + zero clamped in place of round(v clamped) + zero, of scalars; NaN becomes
    zero. conversion: LLVM's name of the instruction.
    """

    conversion: str

    name = "saturate_conversions"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.NO_BFLOAT16_ARITHMETIC,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites the sums of a program."""
        move = partial(_move_clamp, self.conversion)
        return with_body(func, tvm_ffi.structural_map(func.body, [(tirx.Add, move)]))


def _move_clamp(conversion: str, total: Any) -> Any:
    """The clamped sum in place of int32(nearbyint(min(max(v, low - zero), high - zero))) + zero."""
    cast, zero = total.a, total.b
    if not isinstance(cast, tirx.Cast) or dtype_of(cast) != "int32":
        return total
    value = _argument(cast.value)
    if not isinstance(value, tirx.Min) or not isinstance(value.a, tirx.Max):
        return total
    low, high = (_limit(one, zero) for one in (value.a.b, value.b))
    if low is None or high is None:
        return total
    # The intrinsic gives the bits of the integer in a register of floats.
    bits = tirx.call_llvm_pure_intrin("float32", conversion, value.a.a)
    integer = tirx.reinterpret("int32", bits)
    moved = tirx.call_llvm_pure_intrin("int32", "llvm.sadd.sat", integer, zero)
    return tirx.max(tirx.min(moved, high), low)


def _argument(call: Any) -> Any:
    """The operand that is rounded to a float32, None of other expressions."""
    if op_name(call) != "tirx.nearbyint" or dtype_of(call) != "float32":
        return None
    return call.args[0]


def _limit(limit: Any, zero: Any) -> Any:
    """The number of float32(number - zero), None for another expression."""
    if not isinstance(limit, tirx.Cast) or dtype_of(limit.value) != "int32":
        return None
    number = tvm.sym.Analyzer().simplify(limit.value + zero)
    return None if as_int(number) is None else number
