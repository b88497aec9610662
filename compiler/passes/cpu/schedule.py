"""Gives every tensor program that still has no schedule one for the CPU; what has no known form
stays as it is.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from compiler.passes.cpu.families.attention.emit import emit_attention, read_attention
from compiler.passes.cpu.families.copy.emit import emit_copy, marked
from compiler.passes.cpu.families.generic.emit import emit_program
from compiler.passes.cpu.families.grouped_conv.emit import emit_direct, read_direct
from compiler.passes.cpu.families.int8.emit import emit_integers, read_integers
from compiler.passes.cpu.families.matmul.emit import emit_contraction
from compiler.passes.cpu.families.matmul.match import read_contraction
from compiler.passes.cpu.families.matmul_dynamic.emit import emit_blocked
from compiler.passes.cpu.families.pooling.emit import emit_window, read_window
from compiler.passes.cpu.families.transpose.emit import emit_permute, read_permute
from compiler.passes.cpu.families.winograd.emit import emit_winograd, read_winograd
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.loops import product
from compiler.tir.stages import Program, inline_stages, read_program


@dataclass(frozen=True)
class ScheduleKernels:
    """Rewrites the module's PrimFuncs into loops for `machine`."""

    unit: VectorUnit

    def __call__(self, module: tvm.IRModule) -> tvm.IRModule:
        """The module with the same functions, faster."""
        functions = {gvar: self._schedule(func) for gvar, func in module.functions.items()}
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

    def _schedule(self, func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
        if not isinstance(func, tirx.PrimFunc) or (
            func.attrs and "tirx.is_scheduled" in func.attrs
        ):
            return func
        body = emit_copy(func, self.unit) if marked(func) else self._body(func)
        if body is None:
            return func
        return func.with_body(_root(body)).with_attr("tirx.is_scheduled", True)

    def _body(self, func: tirx.PrimFunc) -> Any:
        program = None if _is_view(func) else read_program(func)
        return None if program is None else self._emit(inline_stages(program))

    def _emit(self, program: Program) -> Any:
        if (tiled := read_winograd(program)) is not None:
            return emit_winograd(tiled, self.unit)
        if (direct := read_direct(program)) is not None:
            return emit_direct(direct, self.unit)
        if (integers := read_integers(program)) is not None:
            return emit_integers(integers, self.unit)
        if (head := read_attention(program)) is not None:
            return emit_attention(head, self.unit)
        contraction = read_contraction(program)
        body = (
            None
            if contraction is None
            else emit_contraction(contraction, self.unit) or emit_blocked(contraction, self.unit)
        )
        if body is None and (window := read_window(program)) is not None:
            body = emit_window(window, self.unit)
        if body is None and (permute := read_permute(program)) is not None:
            body = emit_permute(permute, self.unit)
        return emit_program(program, self.unit) if body is None else body


def _is_view(func: tirx.PrimFunc) -> bool:
    """Whether TVM's lowering will take the function for a reshape: a program that gives its input's
    elements in order, and all of them.
    """
    given, result = func.params[0].ty, func.params[-1].ty
    if not hasattr(given, "shape") or not tvm.sym.Analyzer().can_prove_equal(
        product(list(given.shape)), product(list(result.shape))
    ):
        return False
    try:
        return bool(relax.analysis.has_reshape_pattern(func))
    except tvm.error.InternalError:  # it gives up over some extents that are sums
        return False


def _root(body: Any) -> Any:
    """The body as the one block that later passes expect of every function."""
    block = s_tir.SBlock([], [], [], "root", body)
    return s_tir.SBlockRealize([], tirx.IntImm("bool", 1), block)
