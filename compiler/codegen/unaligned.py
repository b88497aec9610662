"""Lets the arguments of tensor programs lie anywhere: numpy aligns arrays to 16 bytes, and copying
large ones costs more than it saves.
"""

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.tir.exprs import const, dtype_of, load
from compiler.tir.loops import allocate, seq, store


def unaligned(module: tvm.IRModule) -> tvm.IRModule:
    """The flat module with every access of an argument at an offset that TVM cannot see through.

    TVM takes arguments for aligned to a whole vector, whatever their buffers say, and marks what it
    knows of each access so. An offset read from memory leaves nothing to know but the size of an
    element; LLVM moves it out of the loops.
    """
    functions = {
        gvar: _function(_loosened(func)) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _function(func: tirx.PrimFunc) -> tirx.PrimFunc:
    arguments = _arguments(func)
    if not arguments:
        return func
    zero = tirx.Var("origin", "int64")

    def shifted(index: Any) -> Any:
        return index + (zero if dtype_of(index) == "int64" else zero.astype(dtype_of(index)))

    def of_load(node: Any) -> Any:
        return (
            load(node.source, [shifted(index) for index in node.indices])
            if node.source in arguments
            else node
        )

    def of_store(node: Any) -> Any:
        if node.buffer not in arguments:
            return node
        return tirx.BufferStore(node.buffer, node.value, [shifted(index) for index in node.indices])

    body = tvm_ffi.structural.structural_map(
        func.body, ((tvm.ir.TensorLoad, of_load), (tirx.BufferStore, of_store))
    )
    cell, allocation = allocate([1], "int64", "cell")
    return func.with_body(
        seq(
            allocation,
            store(cell, const(0), const(0)),
            tirx.Bind(zero, load(cell, [const(0)])),
            body,
        )
    )


def _loosened(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with arguments whose types say that they are aligned to an element: LLVM turns
    loops into copies by what they say.
    """
    loose = {buffer: _anywhere(buffer) for buffer in _arguments(func)}
    return tvm_ffi.structural.structural_map(func, ((tvm.ir.Var, lambda var: loose.get(var, var)),))


def _anywhere(buffer: Any) -> Any:
    ty = buffer.ty
    return tirx.decl_buffer(
        list(ty.shape),
        str(buffer.dtype),
        buffer.name,
        strides=list(ty.strides),
        elem_offset=ty.elem_offset,
        scope=ty.storage_scope,
        data_alignment=max(tvm.DataType(str(buffer.dtype)).bits // 8, 1),
        offset_factor=ty.offset_factor,
        layout=ty.layout,
    )


def _arguments(func: tirx.PrimFunc) -> set[Any]:
    """The parameters that are buffers, and the views of them."""
    found = {param for param in func.params if hasattr(param.ty, "shape")}

    def declared(node: Any) -> None:
        if any(arg in found for arg in getattr(node.data, "args", ())):
            found.add(node.buffer)

    tvm_ffi.structural_walk(func.body, (tirx.DeclBuffer, declared), order="pre")
    return found
