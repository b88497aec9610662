"""Dot products of small integers, by the processor's instruction where it has one."""

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.targets.architecture import IntegerDot
from compiler.tir.exprs import Expr


def multiply_accumulate(
    instruction: IntegerDot, lanes: int, total: Expr, group: Expr, weights: Expr
) -> Expr:
    """The total plus, for each of the lanes, the dot product of two groups of integers.

    total: int32xlanes; group: the left operand of all lanes, an int32; weights: a vector of the
    instruction's right operands, a group for each lane.
    """
    if instruction.intrinsic is None:
        return total + prim.Broadcast(group, lanes) * weights.astype(f"int32x{lanes}")
    # The instruction takes vectors of groups: the row's in all lanes, one for each column.
    left = tirx.reinterpret(
        f"{instruction.right}x{instruction.group * lanes}", prim.Broadcast(group, lanes)
    )
    arguments = (total, left, weights) if instruction.adds else (left, weights)
    result = tirx.call_llvm_pure_intrin(f"int32x{lanes}", instruction.intrinsic, *arguments)
    return result if instruction.adds else total + result
