"""Tensor programs in 32-bit integers, for devices that have no others."""

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir.prim import expr as prim

from compiler.errors import PassError

_BINARY = (
    *(prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod, prim.Min, prim.Max),
    *(prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE, prim.And, prim.Or),
    *(prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor, prim.LShift, prim.RShift),
)
_WIDE, _NARROW = "int64", "int32"
_LIMIT = 2**31


def narrow_kernel(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with int32 wherever it had int64: parameters, buffers, indices and values.

    Raises PassError for a constant that 32 bits do not hold.
    """
    constants: list[Any] = []
    tvm_ffi.structural_walk(func, (prim.IntImm, constants.append))
    check_fits(*(int(constant.value) for constant in constants))
    result: tirx.PrimFunc = _Narrow()(func)
    return result


def check_fits(*values: int) -> None:
    """Raise PassError for a value that 32 bits do not hold."""
    for value in values:
        if not -_LIMIT <= value < _LIMIT:
            raise PassError(
                f"the constant {value} needs 64 bits, which the target's kernels do not have",
                reason="narrow_integers",
                pass_name="narrow",
                hint="build for a target with 64-bit integers",
            )


class _Narrow:
    """The mapping over one function; a variable keeps its one replacement."""

    def __init__(self) -> None:
        self._variables: dict[int, tuple[Any, Any]] = {}
        self._callbacks = [
            (ir.Var, self._variable),
            (prim.IntImm, _constant),
            (prim.Cast, _cast),
            (_BINARY, lambda node: type(node)(node.a, node.b)),
            (prim.Select, lambda node: prim.Select(node.condition, node.true_value, node.false_value)),
            (prim.Let, lambda node: prim.Let(node.var, node.value, node.body)),
            (ir.Call, _call),
            (ir.TensorLoad, lambda node: tirx.BufferLoad(node.source, list(node.indices))),
        ]

    def __call__(self, node: Any) -> Any:
        return tvm_ffi.structural_map(node, self._callbacks)

    def _variable(self, variable: Any) -> Any:
        key = variable.__chandle__()
        if key not in self._variables:
            self._variables[key] = (variable, self._replacement(variable))
        return self._variables[key][1]

    def _replacement(self, variable: Any) -> Any:
        if isinstance(variable.ty, tirx.BufferType):
            return self._buffer(variable)
        return tirx.Var(variable.name, _NARROW) if str(variable.ty) == _WIDE else variable

    def _buffer(self, buffer: Any) -> Any:
        shape, strides = ([self(extent) for extent in extents] for extents in (buffer.shape, buffer.strides))
        dtype = _NARROW if str(buffer.dtype) == _WIDE else str(buffer.dtype)
        return tirx.decl_buffer(
            shape, dtype, name=buffer.name, strides=strides or None, elem_offset=self(buffer.elem_offset), scope=buffer.scope()
        )


def _constant(node: Any) -> Any:
    return tirx.IntImm(_NARROW, int(node.value)) if str(node.ty) == _WIDE else node


def _cast(node: Any) -> Any:
    if str(node.ty) != _WIDE:
        return node
    return node.value if str(node.value.ty) == _NARROW else prim.Cast(tvm.ir.PrimType(_NARROW), node.value)


def _call(node: Any) -> Any:
    if str(node.ty) != _WIDE:
        return node
    return ir.Call(node.op, list(node.args), attrs=node.attrs, ty_args=list(node.ty_args), ret_ty=tvm.ir.PrimType(_NARROW))
