"""Makes every buffer one-dimensional, as code generation wants them, and booleans bytes.

TVM's FlattenBuffer simplifies each index by proofs, which took a quarter of MiniLM's build; LLVM
simplifies indices anyway.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass
from compiler.passes.framework.properties import Property
from compiler.tir.building import emit, statements
from compiler.tir.exprs import const, dtype_of, items
from compiler.tir.loops import with_body

# The functions behind + and *, which look at their operands for longer than they take.
_add, _multiply = map(tvm.get_global_func, ("prim._OpAdd", "prim._OpMul"))


@dataclass(frozen=True)
class FlattenBuffers(ProgramPass):
    """Gives every buffer one dimension, and booleans bytes."""

    name = "flatten_buffers"
    phase = Phase.LOWERED_LOOPS
    requires = (Property.NO_BLOCKS,)
    ensures = (Property.FLAT_BUFFERS,)

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Rewrites a program; parameters keep their shapes."""
        return _Flattening().function(func)


@dataclass(frozen=True)
class _View:
    """A buffer as code generation gets it; `moved` is False where that is the buffer itself.

    strides: by axis, where the buffer has some; extents: those that an index is multiplied by
    otherwise, of every axis but the first.
    """

    flat: Any
    moved: bool
    boolean: bool
    strides: list[Any]
    extents: list[Any]

    @classmethod
    def of(cls, buffer: Any) -> "_View":
        shape = items(buffer.shape)
        flat = buffer if len(shape) == 1 else buffer.get_flattened_buffer()
        boolean = dtype_of(buffer) == "bool"
        flat = flat.with_dtype("int8") if boolean else flat
        return cls(flat, not flat.same_as(buffer), boolean, items(buffer.ty.strides), shape[1:])

    def offset(self, indices: Any) -> Any:
        """Row by row; strides, where the buffer has some, say otherwise."""
        if self.strides:
            parts = [index * step for step, index in zip(self.strides, items(indices), strict=True)]
            return sum(parts[1:], parts[0])
        first, *inner = items(indices) or [const(0)]
        # Indices may be int32, offsets are int64.
        total = _add(const(0), first, None)
        for extent, index in zip(self.extents, inner, strict=True):
            total = _add(_multiply(total, extent, None), index, None)
        return total


class _Flattening:
    """Flattens one function; parameters keep their shapes, and are accessed by flat views."""

    def __init__(self) -> None:
        # By address, with the buffer: TVM's variables take long to compare.
        self._views: dict[int, tuple[Any, _View]] = {}

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
        with statements() as result:
            for param in func.params:
                _, view = self._views.get(param.__chandle__(), (None, None))
                if view is not None and view.moved:
                    emit(tirx.DeclBuffer(view.flat, data=param.data))
            emit(body)
        return with_body(func, result.stmt)

    def _load(self, node: Any) -> Any:
        view = self._of(node.source)
        if not view.moved:
            return node
        loaded = tirx.BufferLoad(view.flat, [view.offset(node.indices)])
        return loaded.astype("bool") if view.boolean else loaded

    def _store(self, node: Any) -> Any:
        view = self._of(node.buffer)
        if not view.moved:
            return node
        value = node.value.astype("int8") if view.boolean else node.value
        return tirx.BufferStore(view.flat, value, [view.offset(node.indices)])

    def _allocate(self, node: Any) -> Any:
        view = self._of(node.buffer)
        return tirx.AllocBuffer(view.flat, annotations=node.annotations) if view.moved else node

    def _declare(self, node: Any) -> Any:
        view = self._of(node.buffer)
        return tirx.DeclBuffer(view.flat, data=node.data) if view.moved else node

    def _of(self, buffer: Any) -> _View:
        key = buffer.__chandle__()
        if key not in self._views:
            self._views[key] = buffer, _View.of(buffer)
        return self._views[key][1]
