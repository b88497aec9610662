"""Rewrites tensor programs to 32-bit integers, for devices that have no others and store no
booleans.
"""

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir.prim import expr as prim

from compiler.errors import PassError

_BINARY = (
    *(
        prim.Add,
        prim.Sub,
        prim.Mul,
        prim.Div,
        prim.Mod,
        prim.FloorDiv,
        prim.FloorMod,
        prim.Min,
        prim.Max,
    ),
    *(prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE, prim.And, prim.Or),
    *(prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor, prim.LShift, prim.RShift),
)
NARROWED = {
    "int64": "int32",
    "int16": "int32",
    "int8": "int32",
    "uint16": "uint32",
    "uint8": "uint32",
}
"""The types that replace integers. A value of fewer bits is cut to its bits where it is computed,
so that it overflows as before.
"""

STORED = NARROWED | {"bool": "int32"}
"""The types that replace elements of tensors."""

_BITS = {"int8": 8, "int16": 16, "uint8": 8, "uint16": 16}
_OVERFLOWING = (prim.Add, prim.Sub, prim.Mul, prim.LShift)
_LIMIT = 2**31


def narrow_kernel(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Rewrites parameters, buffers, indices and values to 32-bit integers; booleans are stored as
    0 and 1.

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
    """Maps one function; every use of a variable gets the same replacement."""

    def __init__(self) -> None:
        self._variables: dict[int, tuple[Any, Any]] = {}
        self._callbacks = [
            (ir.Var, self._variable),
            (prim.IntImm, _constant),
            (prim.Cast, _cast),
            (_BINARY, _binary),
            (
                prim.Select,
                lambda node: prim.Select(node.condition, node.true_value, node.false_value),
            ),
            (prim.Let, lambda node: prim.Let(node.var, node.value, node.body)),
            (ir.Call, _call),
            (ir.TensorLoad, _load),
            (tirx.BufferStore, _store),
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
        narrowed = NARROWED.get(str(variable.ty))
        return tirx.Var(variable.name, narrowed) if narrowed else variable

    def _buffer(self, buffer: Any) -> Any:
        shape, strides = (
            [self(extent) for extent in extents] for extents in (buffer.shape, buffer.strides)
        )
        dtype = STORED.get(str(buffer.dtype), str(buffer.dtype))
        return tirx.decl_buffer(
            shape,
            dtype,
            name=buffer.name,
            strides=strides or None,
            elem_offset=self(buffer.elem_offset),
            scope=buffer.scope(),
        )


# Each callback below sees a node whose children are mapped already, while its own type is still the
# original one.


def _constant(node: Any) -> Any:
    narrowed = NARROWED.get(str(node.ty))
    return tirx.IntImm(narrowed, int(node.value)) if narrowed else node


def _binary(node: Any) -> Any:
    # Only these can leave the range of a narrower type; comparisons and minima cannot.
    result = type(node)(node.a, node.b)
    return _cut(result, str(node.ty)) if isinstance(node, _OVERFLOWING) else result


def _cast(node: Any) -> Any:
    narrowed = NARROWED.get(str(node.ty))
    if narrowed is None:
        return node
    value = (
        node.value
        if str(node.value.ty) == narrowed
        else prim.Cast(tvm.ir.PrimType(narrowed), node.value)
    )
    return _cut(value, str(node.ty))


def _cut(value: Any, dtype: str) -> Any:
    """Cuts a 32-bit `value` to the bits of `dtype`, as the narrower type would overflow."""
    if dtype not in _BITS:
        return value
    if dtype.startswith("u"):
        return prim.BitwiseAnd(value, tirx.IntImm("uint32", (1 << _BITS[dtype]) - 1))
    spare = tirx.IntImm("int32", 32 - _BITS[dtype])
    return prim.RShift(prim.LShift(value, spare), spare)


def _call(node: Any) -> Any:
    narrowed = NARROWED.get(str(node.ty))
    if narrowed is None:
        return node
    return ir.Call(
        node.op,
        list(node.args),
        attrs=node.attrs,
        ty_args=list(node.ty_args),
        ret_ty=tvm.ir.PrimType(narrowed),
    )


def _load(node: Any) -> Any:
    value = tirx.BufferLoad(node.source, list(node.indices))
    return (
        prim.NE(value, tirx.IntImm("int32", 0))
        if str(node.ty) == "bool" and str(value.ty) == "int32"
        else value
    )


def _store(node: Any) -> Any:
    value = node.value
    if str(value.ty) == "bool" and str(node.buffer.dtype) == "int32":
        value = prim.Select(value, tirx.IntImm("int32", 1), tirx.IntImm("int32", 0))
    return tirx.BufferStore(node.buffer, value, list(node.indices))
