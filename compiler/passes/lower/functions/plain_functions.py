"""Functions of pointers and numbers that lowered loops become."""

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import PointerType

from compiler.tir.exprs import dtype_of
from compiler.tir.loops import Stmt


def plain_function(params: Sequence[Any], body: Stmt, attrs: Any) -> tirx.PrimFunc:
    """A function of these parameters that returns 0, or -1 where memory lacks."""
    for key in ("device_type", "device_id"):
        value = tirx.IntImm("int32", 1 if key == "device_type" else 0)
        body = tirx.AttrStmt("default", key, value, body)
    body = tirx.SeqStmt([body, tirx.Return(tirx.IntImm("int32", 0))])
    return tirx.PrimFunc(list(params), body, ret_type=tvm.ir.PrimType("int32"), attrs=attrs)


def unpack(variables: Any) -> tuple[list[Any], list[Stmt], tuple[str | None, ...]]:
    """Parameters of a function that takes these buffers and numbers, the declarations of the
    buffers, and the types of the parameters.
    """
    taken: list[Any] = []
    declared: list[Stmt] = []
    types: list[str | None] = []
    for var in variables:
        if not hasattr(var.ty, "shape"):
            taken.append(var)
            types.append(None if isinstance(var.ty, PointerType) else dtype_of(var))
            continue
        pointer = tirx.Var(f"{var.name}_data", PointerType(var.ty.dtype, var.ty.storage_scope))
        origin = var.ty.elem_offset
        if isinstance(origin, tvm.ir.Var):
            declared.append(tirx.Bind(origin, tirx.const(0, dtype_of(origin))))
        declared.append(tirx.DeclBuffer(var, data=pointer))
        taken.append(pointer)
        types.append(None)
    return taken, declared, tuple(types)
