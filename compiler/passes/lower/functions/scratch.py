"""Allocates a kernel's working memory: small buffers of known size on the stack, others at offsets
in memory that the caller gives.
"""

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import PointerType

from compiler.errors import CodegenError
from compiler.tir.c_text import element_bytes
from compiler.tir.exprs import as_int, const, dtype_of, rewrite, substitute
from compiler.tir.loops import seq

_ON_STACK = 4096
_LINE = 64
_AS_IT_IS = "disable_lower_builtin"


@dataclass
class Scratch:
    """Offsets in `base`, a kernel's scratch argument, one after the other.

    known: the variables that the caller of the kernel knows. bytes: what is taken so far, over
    these. Buffers share no memory: LLVM takes accesses of different buffers for independent.
    """

    base: Any
    known: frozenset[Any]
    bytes: Any = field(default_factory=lambda: const(0))
    _values: dict[Any, Any] = field(default_factory=dict)

    def bind(self, node: Any) -> None:
        """Note what a variable stands for."""
        self._values[node.var] = node.value

    def store(self, node: Any) -> None:
        """Note the value of a cell, by way of which extents are hidden from TVM's analyzer."""
        if as_int(node.buffer.shape[0]) == 1 and dtype_of(node.buffer) == "int64":
            again = node.buffer in self._values
            self._values[node.buffer] = None if again else node.value

    def allocate(self, node: Any) -> Any:
        """The statement in place of an AllocBuffer."""
        if node.annotations and _AS_IT_IS in node.annotations:
            return node
        size = const(element_bytes(dtype_of(node.buffer)))
        for extent in node.buffer.shape:
            size = size * extent.astype("int64")
        size = tvm.sym.Analyzer().simplify(self._resolved(size))
        fixed = as_int(size)
        if fixed is not None and fixed <= _ON_STACK:
            return tirx.AllocBuffer(node.buffer, {_AS_IT_IS: tirx.IntImm("bool", 1)})
        offset = self.bytes
        self.bytes = tvm.sym.Analyzer().simplify(offset + _align(size))
        return self._view(node.buffer, offset)

    def reserve(self, size: Any) -> None:
        """Take at least so many bytes."""
        self.bytes = tvm.sym.Analyzer().simplify(tirx.max(self.bytes, size))

    def _view(self, buffer: Any, offset: Any) -> Any:
        ty = buffer.ty
        pointer = tirx.Var(f"{buffer.name}_data", PointerType(ty.dtype, ty.storage_scope))
        # An index of int32 would limit the memory of a kernel to 2 GB.
        cell = tirx.BufferLoad(self.base, [offset])
        address = tvm.ir.Call("tirx.address_of", [cell], ret_ty=pointer.ty)
        return seq(tirx.Bind(pointer, address), tirx.DeclBuffer(buffer, data=pointer))

    def _resolved(self, size: Any) -> Any:
        """The size over what the caller knows; raises CodegenError."""
        for _ in range(64):
            unknown = [v for v in tirx.analysis.undefined_vars(size) if v not in self.known]
            if not unknown:
                return size
            size = substitute(self._without_cells(size), {v: self._value(v) for v in unknown})
        raise self._refusal(size)

    def _value(self, var: Any) -> Any:
        value = self._values.get(var)
        if value is None:
            raise self._refusal(var)
        return self._without_cells(value)

    def _without_cells(self, expr: Any) -> Any:
        def cell(node: Any) -> Any:
            if not isinstance(node, tvm.ir.TensorLoad):
                return None
            value = self._values.get(node.source)
            if value is None:
                raise self._refusal(node.source)
            return value

        return rewrite(expr, cell)

    @staticmethod
    def _refusal(size: Any) -> CodegenError:
        return CodegenError(
            f"a kernel's working memory depends on {size}, which only the kernel knows",
            reason="scratch",
            hint="build it with `--flavour vm`",
        )


def _align(size: Any) -> Any:
    return tirx.floordiv(size + const(_LINE - 1), const(_LINE)) * const(_LINE)
