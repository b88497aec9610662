"""Lets the arguments of tensor programs lie anywhere in memory.

numpy aligns arrays to 16 bytes, less than the vectors of any of our targets but SSE and NEON, and
copying a large argument costs more than aligned loads save.

Upstream: apache/tvm#14771, which would have allowed it, was closed in 2023 without being merged.
The pass can go when a buffer's `data_alignment` decides how its parameter is accessed.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.building import alloc, emit, fresh, statements, store
from compiler.tir.exprs import dtype_of, load
from compiler.tir.loops import with_body


@dataclass(frozen=True)
class AllowUnaligned(ProgramPass):
    """Moves every access of an argument by an offset that TVM cannot see through.

    TVM takes arguments for aligned to a whole vector, whatever their buffers say, and marks what it
    knows of each access so. An offset read from memory leaves nothing to know but the size of an
    element; LLVM moves it out of the loops.
    """

    name = "allow_unaligned"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.FLAT_BUFFERS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites a program if it has buffers as parameters."""
        return _function(_loosen(func))


@dataclass(frozen=True)
class _Shift:
    """Moves the accesses of some buffers, which it has by address, by `origin`, which is zero."""

    arguments: Set[int]
    origin: Any

    def load(self, node: Any) -> Any:
        if node.source.__chandle__() not in self.arguments:
            return node
        return load(node.source, self._move(node.indices))

    def store(self, node: Any) -> Any:
        if node.buffer.__chandle__() not in self.arguments:
            return node
        return tirx.BufferStore(node.buffer, node.value, self._move(node.indices))

    def _move(self, indices: Any) -> list[Any]:
        # Vectors of indices are int32 where a gather reads them so.
        return [self._beyond(index) for index in indices]

    def _beyond(self, index: Any) -> Any:
        if isinstance(index, prim.Ramp):
            # A ramp plus a number is a gather to LLVM, one byte after the other.
            return prim.Ramp(self._beyond(index.base), index.stride, index.lanes)
        return index + _as_type(self.origin, dtype_of(index))


def _as_type(value: Any, dtype: str) -> Any:
    return value if dtype == "int64" else value.astype(dtype)


def _function(func: tirx.PrimFunc) -> tirx.PrimFunc:
    arguments = _arguments(func)
    if not arguments:
        return func
    with statements() as body:
        # A cell on the stack: TVM does not follow values through memory, LLVM does.
        cell = alloc([1], "int64", "cell")
        store(cell, 0, 0)
        shift = _Shift(arguments.keys(), fresh("origin", load(cell, [0])))
        moves = ((tvm.ir.TensorLoad, shift.load), (tirx.BufferStore, shift.store))
        emit(tvm_ffi.structural.structural_map(func.body, moves))
    return with_body(func, body.stmt)


def _loosen(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with arguments whose types say that they are aligned to an element."""
    # LLVM makes a memcpy of a loop that copies, and gives it the alignment of the types.
    loose = [(buffer, _anywhere(buffer)) for buffer in _arguments(func).values()]

    def replaced(function: Any, mutator: Any) -> Any:
        for buffer, other in loose:
            mutator.var_remap_set(buffer, other)
        return mutator.default_mutate(function)

    return tvm_ffi.structural_mutate(func, [(tirx.PrimFunc, replaced)])


def _anywhere(buffer: Any) -> Any:
    ty = buffer.ty
    return tirx.decl_buffer(
        list(ty.shape),
        str(buffer.dtype),
        buffer.name,
        strides=list(ty.strides),
        elem_offset=ty.elem_offset,
        scope=ty.storage_scope,
        # Every other field stays; without this one the type claims 64 bytes.
        data_alignment=max(tvm.DataType(str(buffer.dtype)).bits // 8, 1),
        offset_factor=ty.offset_factor,
        layout=ty.layout,
    )


def _arguments(func: tirx.PrimFunc) -> dict[int, Any]:
    """The parameters that are buffers, and the views of them, by address."""
    arguments = {param.__chandle__(): param for param in func.params if hasattr(param.ty, "shape")}

    def declared(node: Any) -> None:
        if any(arg.__chandle__() in arguments for arg in getattr(node.data, "args", ())):
            arguments[node.buffer.__chandle__()] = node.buffer

    tvm_ffi.structural_walk(func.body, (tirx.DeclBuffer, declared), order="pre")
    return arguments
