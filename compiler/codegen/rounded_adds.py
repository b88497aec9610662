"""Rounds to integers by additions, for processors without an instruction that rounds: their C
library takes 150 instructions a number.
"""

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.tir.exprs import as_int, dtype_of, op_name
from compiler.tir.loops import with_body

_MOST = 1 << 22
_MAGIC = float(3 << 22)
"""A float32 so far from zero has no fractions: what is added to it is rounded, halves to even."""


def rounded_adds(module: tvm.IRModule) -> tvm.IRModule:
    """The module with additions in place of nearbyint where the number is clamped and becomes an
    integer, so that the sign of a zero does not matter.
    """
    functions = {
        gvar: with_body(func, tvm_ffi.structural_map(func.body, [(tirx.Cast, _converted)]))
        if isinstance(func, tirx.PrimFunc)
        else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _converted(cast: Any) -> Any:
    call = cast.value
    if "int" not in dtype_of(cast) or op_name(call) != "tirx.nearbyint":
        return cast
    (value,) = call.args
    if dtype_of(value) != "float32" or not _clamped(value):
        return cast
    magic = tirx.const(_MAGIC, "float32")
    return ((value + magic) - magic).astype(dtype_of(cast))


def _clamped(value: Any) -> bool:
    """Whether it is min(max(.., least), most), of limits that are far below the constant."""
    if not isinstance(value, tirx.Min) or not isinstance(value.a, tirx.Max):
        return False
    limits = [_magnitude(limit) for limit in (value.a.b, value.b)]
    return all(limit is not None and limit <= _MOST for limit in limits)


def _magnitude(limit: Any) -> int | None:
    """At most how large a number is that comes of constants and small integers, None of others."""
    known = as_int(limit)
    if known is not None:
        return abs(known)
    if isinstance(limit, tirx.Sub):
        parts = [_magnitude(limit.a), _magnitude(limit.b)]
        return None if None in parts else sum(part for part in parts if part is not None)
    if isinstance(limit, tirx.Cast):
        dtype = tvm.DataType(dtype_of(limit.value))
        if dtype.bits <= 16 and "int" in str(dtype):
            return 1 << int(dtype.bits)
        return _magnitude(limit.value)
    return None
