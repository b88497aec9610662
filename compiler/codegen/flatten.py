"""Makes every buffer one-dimensional, as code generation wants them, and booleans bytes.

TVM's FlattenBuffer simplifies each index by proofs, which took a quarter of MiniLM's build; LLVM
simplifies indices anyway.
"""

from collections.abc import Iterable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.tir.building import emit, statements
from compiler.tir.exprs import const, dtype_of


def flattened(module: tvm.IRModule) -> tvm.IRModule:
    """The module, whose loops are lowered from blocks, with flat buffers and flat accesses."""
    functions = {
        gvar: _Flattening().function(func) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


class _Flattening:
    """Flattens one function; parameters keep their shapes, and are accessed by flat views."""

    def __init__(self) -> None:
        self._flat: dict[Any, Any] = {}

    def function(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        body = tvm_ffi.structural_map(
            func.body,
            (
                (tvm.ir.TensorLoad, self._load),
                (tirx.BufferStore, self._store),
                (tirx.AllocBuffer, self._allocate),
                (tirx.DeclBuffer, self._declare),
            ),
        )
        with statements() as whole:
            for param in func.params:
                view = self._flat.get(param, param)
                if not view.same_as(param):
                    emit(tirx.DeclBuffer(view, data=param.data))
            emit(body)
        return func.with_body(whole.stmt)

    def _load(self, node: Any) -> Any:
        buffer = self._of(node.source)
        if buffer.same_as(node.source):
            return node
        loaded = tirx.BufferLoad(buffer, [_offset(node.source, node.indices)])
        return loaded.astype("bool") if dtype_of(node.source) == "bool" else loaded

    def _store(self, node: Any) -> Any:
        buffer = self._of(node.buffer)
        if buffer.same_as(node.buffer):
            return node
        value = node.value.astype("int8") if dtype_of(node.buffer) == "bool" else node.value
        return tirx.BufferStore(buffer, value, [_offset(node.buffer, node.indices)])

    def _allocate(self, node: Any) -> Any:
        buffer = self._of(node.buffer)
        return (
            node
            if buffer.same_as(node.buffer)
            else tirx.AllocBuffer(buffer, annotations=node.annotations)
        )

    def _declare(self, node: Any) -> Any:
        buffer = self._of(node.buffer)
        return node if buffer.same_as(node.buffer) else tirx.DeclBuffer(buffer, data=node.data)

    def _of(self, buffer: Any) -> Any:
        """The flat form of a buffer, which is the buffer itself if it is flat."""
        if buffer not in self._flat:
            self._flat[buffer] = _flat(buffer)
        return self._flat[buffer]


def _flat(buffer: Any) -> Any:
    flat = buffer if len(buffer.shape) == 1 else buffer.get_flattened_buffer()
    return flat.with_dtype("int8") if dtype_of(buffer) == "bool" else flat


def _offset(buffer: Any, indices: Iterable[Any]) -> Any:
    """Row by row; strides, where the buffer has some, say otherwise."""
    total: Any = const(0)
    if buffer.ty.strides:
        for stride, index in zip(buffer.ty.strides, indices, strict=True):
            total = total + index * stride
        return total
    for extent, index in zip(buffer.shape, indices, strict=True):
        total = total * extent + index
    return total
