"""Writes loops for the CPU for every tensor program without a schedule, by the first family that
matches; programs that no family can read are left.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from compiler.passes.cpu.families.copy.match import is_copy
from compiler.passes.cpu.families.family import Declined, Family
from compiler.passes.cpu.families.table import FAMILIES
from compiler.passes.framework.attributes import OBJECT
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.kernel_notes import FOREIGN, KernelNote
from compiler.passes.framework.properties import Property
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import const
from compiler.tir.loops import Stmt, multiply_extents, root, with_body
from compiler.tir.stages import Program, drop_empty_stages, inline_stages, read_program

VIEW = "view"
"""The family of programs that need no code: TVM turns their calls into reshapes."""

EMPTY = "empty"
"""The family of programs whose results have no elements."""


@dataclass(frozen=True)
class Choice:
    """The family that takes a program, its match, and the families that declined before it."""

    family: Family[Any]
    match: Any
    declined: tuple[tuple[Family[Any], Declined], ...]

    def note(self, unit: VectorUnit) -> KernelNote:
        """Describes the choice for users."""
        declined = {family.name: answer.reason for family, answer in self.declined}
        return KernelNote(self.family.name, self.family.tile(self.match, unit), declined)


def choose(program: Program, unit: VectorUnit) -> Choice:
    """Asks the families in order; the last one takes every program."""
    declined: list[tuple[Family[Any], Declined]] = []
    for family in FAMILIES:
        match = family.match(program, unit)
        if not isinstance(match, Declined):
            return Choice(family, match, tuple(declined))
        declined.append((family, match))
    raise AssertionError(f"{FAMILIES[-1].name} declined: {declined[-1][1].reason}")


@dataclass(frozen=True)
class ScheduleKernels(ModulePass):
    """Rewrites PrimFuncs without a schedule into loops for the vector unit, with a note of the
    family.
    """

    unit: VectorUnit
    name = "schedule_kernels"
    phase = Phase.LOOPS
    requires = (Property.TENSOR_PROGRAMS, Property.FUSED)
    ensures = (Property.SCHEDULED,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every PrimFunc that some family takes."""
        functions = {gvar: self._schedule(func) for gvar, func in module.functions.items()}
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)

    def _schedule(self, func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
        if not isinstance(func, tirx.PrimFunc) or OBJECT in (func.attrs or {}):
            return func
        if func.attrs and "tirx.is_scheduled" in func.attrs:
            return KernelNote(FOREIGN).onto(func)
        if _is_view(func):
            return KernelNote(VIEW).onto(func)
        # The importers and TVM write some programs as loops with state, which no family reads.
        program = read_program(func)
        if program is None:
            return KernelNote(FOREIGN).onto(func)
        program = drop_empty_stages(program)
        if not program.stages:
            done = with_body(func, root(tirx.Evaluate(const(0))))
            return KernelNote(EMPTY).onto(done.with_attr("tirx.is_scheduled", True))
        choice, body = self._emit(inline_stages(program))
        return choice.note(self.unit).onto(
            with_body(func, root(body)).with_attr("tirx.is_scheduled", True)
        )

    def _emit(self, program: Program) -> tuple[Choice, Stmt]:
        choice = choose(program, self.unit)
        return choice, choice.family.emit(choice.match, self.unit)


def _is_view(func: tirx.PrimFunc) -> bool:
    """True if TVM's lowering recognises the function as a reshape: it has all elements of its input
    in order, and is not marked as a copy.
    """
    source, result = func.params[0].ty, func.params[-1].ty
    if is_copy(func) or not hasattr(source, "shape"):
        return False
    if not tvm.sym.Analyzer().can_prove_equal(
        multiply_extents(list(source.shape)), multiply_extents(list(result.shape))
    ):
        return False
    try:
        return bool(relax.analysis.has_reshape_pattern(func))
    except tvm.error.InternalError:  # it gives up over some extents that are sums
        return False
