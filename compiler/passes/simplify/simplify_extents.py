"""Writes every extent in its simplest form, in the types of graphs and in those of programs.

FuseTIR matches the extents of a program with those of its arguments term by term: a program over
`n + 2` does not match a tensor of `2 + n`, as Relax deduces it for a concatenation.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, sym, tirx

from compiler.passes.framework.base import ModulePass, Phase


@dataclass(frozen=True)
class SimplifyExtents(ModulePass):
    """Simplifies the extents of tensors and shapes in graphs, and of buffers in programs."""

    name = "simplify_extents"
    phase = Phase.TENSOR_PROGRAMS

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites functions of both kinds; those that are simple already stay as they are."""
        functions = {gvar: _simplify_extents(func) for gvar, func in module.functions.items()}
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _simplify_extents(func: Any) -> Any:
    simplify = sym.Analyzer().simplify

    def simplify_shape(shape: relax.ShapeExpr) -> relax.ShapeExpr:
        if _is_simple(shape.values):
            return shape
        return relax.ShapeExpr([simplify(extent) for extent in shape.values])

    def simplify_buffer(buffer: tirx.BufferType) -> tirx.BufferType:
        if _is_simple(buffer.shape):
            return buffer
        return tvm_ffi.structural_map(buffer, [(ir.Expr, simplify)], order="pre")

    return tvm_ffi.structural_map(
        func, [(relax.ShapeExpr, simplify_shape), (tirx.BufferType, simplify_buffer)]
    )


def _is_simple(extents: Any) -> bool:
    """True if each extent is a number or a dim."""
    return all(isinstance(extent, tirx.IntImm | ir.Var) for extent in extents)
