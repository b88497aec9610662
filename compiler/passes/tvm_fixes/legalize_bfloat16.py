"""Gives bfloat16 its meaning in float32 and integers: LLVM gets no arithmetic of bfloat16.

TVM's BF16ComputeLegalize rounds a value where it is stored and nowhere else, so that a cast to
bfloat16 and back does nothing inside a kernel, and it leaves out what a Let binds.

Upstream: no report to apache/tvm was found; tile-ai/tvm#70, open, is the half about Let. The pass
can go when BF16ComputeLegalize rounds at every cast.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir.prim import expr as prim
from tvm_ffi import VisitInterrupt

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.exprs import dtype_of, is_choice, nodes, op_name
from compiler.tir.loops import with_body

_BFLOAT16 = "bfloat16"
_REINTERPRET = "tirx.reinterpret"
_ADDRESS = "tirx.address_of"
_CHOICES = (prim.Select, prim.Min, prim.Max)
"""Operators whose result is one of their operands, and needs no rounding."""


@dataclass(frozen=True)
class LegalizeBfloat16(ProgramPass):
    """Makes bfloat16 the type of buffers alone.

    A value of bfloat16 is one of float32 that bfloat16 holds: a load widens, and what is cast to
    bfloat16 or computed in it is rounded to nearest, ties to even.
    """

    name = "legalize_bfloat16"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.FLAT_BUFFERS,)
    ensures = (Property.NO_BFLOAT16_ARITHMETIC,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites a program if it has values of bfloat16."""
        return _Widening().function(func)


class _Widening:
    """Rewrites one function, inner nodes first. A node's own type stays bfloat16 until its turn,
    when those of its operands are float32.
    """

    def __init__(self) -> None:
        self._wide: dict[Any, Any] = {}

    def function(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        if not _holds(func):
            return func
        steps = ((ir.Expr, self._expression), (tirx.BufferStore, self._store))
        return with_body(func, tvm_ffi.structural_map(func.body, steps))

    def _expression(self, node: Any) -> Any:
        if op_name(node) == _REINTERPRET:
            return _reinterpreted(node)
        if op_name(node) == _ADDRESS:
            return _address(node)
        if isinstance(node, prim.Cast) and not _is_bfloat16(node):
            # The operand may have been widened to the very type.
            return node.value if dtype_of(node) == dtype_of(node.value) else node
        return self._widened(node) if _is_bfloat16(node) else node

    def _widened(self, node: Any) -> Any:
        """A node of bfloat16 whose operands are widened, as float32."""
        match node:
            case ir.Var():
                return self._variable(node)
            case ir.TensorLoad():
                return _widen(node)
            case prim.FloatImm():
                return tirx.const(float(ml_dtypes.bfloat16(node.value)), "float32")
            case prim.Cast():
                return _round(node.value.astype(_as("float32", node)))
            case prim.Broadcast():
                return prim.Broadcast(node.value, node.lanes)
            case prim.Let():
                return prim.Let(node.var, node.value, node.body)
            case prim.Shuffle():
                return prim.Shuffle(list(node.vectors), list(node.indices))
            case prim.Select():
                return prim.Select(node.condition, node.true_value, node.false_value)
            case ir.Call():
                wide = _call(node, list(node.args), _type_of(node))
                return wide if is_choice(node) else _round(wide)
        computed = type(node)(node.a, node.b)
        return computed if isinstance(node, _CHOICES) else _round(computed)

    def _variable(self, var: Any) -> Any:
        if var not in self._wide:
            self._wide[var] = tirx.Var(var.name, _as("float32", var))
        return self._wide[var]

    def _store(self, node: Any) -> Any:
        if dtype_of(node.buffer) != _BFLOAT16:
            return node
        return tirx.BufferStore(node.buffer, _narrowed(node.value), list(node.indices))


def _holds(func: tirx.PrimFunc) -> bool:
    """Checks that anything in the function is of bfloat16."""
    if any(hasattr(param.ty, "shape") and dtype_of(param) == _BFLOAT16 for param in func.params):
        return True

    def cast(node: Any) -> VisitInterrupt | None:
        return VisitInterrupt(node) if _is_bfloat16(node) or _is_bfloat16(node.value) else None

    def call(node: Any) -> VisitInterrupt | None:
        return VisitInterrupt(node) if _is_bfloat16(node) else None

    def allocation(node: Any) -> VisitInterrupt | None:
        return VisitInterrupt(node) if dtype_of(node.buffer) == _BFLOAT16 else None

    # Beside buffers, these are where values of the type come from and go to.
    steps = ((prim.Cast, cast), (ir.Call, call), (tirx.AllocBuffer, allocation))
    return tvm_ffi.structural_walk(func.body, steps, order="pre") is not None


def _is_bfloat16(node: Any) -> bool:
    ty = node.ty
    return isinstance(ty, ir.PrimType) and str(ty).startswith(_BFLOAT16)


def _as(dtype: str, like: Any) -> str:
    """The dtype with as many lanes as an expression has."""
    lanes = _lanes(like)
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _lanes(expr: Any) -> int:
    return int(tvm.DataType(dtype_of(expr)).lanes)


def _type_of(node: Any) -> Any:
    return ir.PrimType(_as("float32", node))


def _call(like: Any, args: list[Any], ty: Any) -> Any:
    return ir.Call(like.op, args, attrs=like.attrs, ty_args=list(like.ty_args), ret_ty=ty)


def _bits(value: Any) -> Any:
    return tirx.reinterpret(_as("uint32", value), value)


def _u32(value: int, like: Any) -> Any:
    return tirx.const(value, _as("uint32", like))


def _widen(value: Any) -> Any:
    """A number that is stored as bfloat16, as float32."""
    stored = tirx.reinterpret(_as("uint16", value), value)
    wide = stored.astype(_as("uint32", value)) << _u32(16, value)
    return tirx.reinterpret(_as("float32", value), wide)


def _narrowed(value: Any) -> Any:
    """The bfloat16 of a float32 that needs no rounding."""
    upper = (_bits(value) >> _u32(16, value)).astype(_as("uint16", value))
    return tirx.reinterpret(_as(_BFLOAT16, value), upper)


def _round(value: Any) -> Any:
    """The float32 nearest to `value` that bfloat16 holds; NaN stays NaN, and quiet."""
    bits = tirx.Var("bits", _as("uint32", value))
    odd = (bits >> _u32(16, value)) & _u32(1, value)
    magnitude = bits & _u32(0x7FFFFFFF, value)
    moved = prim.Select(
        magnitude > _u32(0x7F800000, value),
        bits | _u32(0x00400000, value),
        bits + odd + _u32(0x7FFF, value),
    )
    nearest = tirx.reinterpret(_as("float32", value), moved & _u32(0xFFFF0000, value))
    return prim.Let(bits, _bits(value), nearest)


def _reinterpreted(call: Any) -> Any:
    """A reinterpretation whose operand or result may be of bfloat16."""
    (value,) = call.args
    wanted, operand = (tvm.DataType(dtype_of(node)) for node in (call, value))
    if wanted.bits * wanted.lanes != operand.bits * operand.lanes:
        # The operand was of bfloat16 before it was widened.
        call = tirx.reinterpret(dtype_of(call), _narrowed(value))
    return _widen(call) if _is_bfloat16(call) else call


def _address(call: Any) -> Any:
    """The address of an element, which may have been widened."""
    element = next(node for node in nodes(call.args[0]) if isinstance(node, ir.TensorLoad))
    if element.same_as(call.args[0]):
        return call
    return _call(call, [element], call.ty)
