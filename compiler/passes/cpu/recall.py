"""Replaces tensor programs by stubs where an earlier build left the object of the same kernel.

What becomes of a program depends on the program, the target and the bounds of its dims alone, so
that neither its loops nor their lowering have to be written again.
"""

import json
from dataclasses import dataclass
from typing import Any, Protocol

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from compiler.ir.imported import Ranges
from compiler.passes.cpu.decide_branches import Bounds, known_bounds
from compiler.passes.framework.attributes import OBJECT
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.kernel_notes import REMEMBERED, KernelNote
from compiler.passes.framework.properties import Property
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.loops import root, with_body


@dataclass(frozen=True)
class Recalled:
    """A kernel of an earlier build: the note that its scheduling left, and its object's key."""

    note: KernelNote
    object: str


class Recall(Protocol):
    """What is known of the kernels of earlier builds."""

    def key(self, name: str, program: tirx.PrimFunc, given: str, target: Target) -> str | None:
        """The key of an unscheduled program; None for one that has no canonical form.

        given: what decides its loops beside its canonical form and the target.
        """

    def recalled(self, key: str) -> Recalled | None:
        """The kernel that a program of this key became, if its object can still be linked."""


@dataclass(frozen=True)
class RecallKernels(ModulePass):
    """Marks programs with the key under which code generation leaves what they become, and makes
    stubs of those that are known.
    """

    recall: Recall
    target: Target
    ranges: Ranges
    name = "recall_kernels"
    phase = Phase.LOOPS
    requires = (Property.FUSED,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Rewrites every tensor program that has a key."""
        unit, known = VectorUnit.of(self.target), known_bounds(module, self.ranges)

        def replaced(gvar: tvm.ir.GlobalVar, func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
            if not isinstance(func, tirx.PrimFunc):
                return func
            given = json.dumps([repr(unit), _bounds(func, known.get(gvar, {})), _names(func)])
            key = self.recall.key(gvar.name_hint, func, given, self.target)
            if key is None:
                return func
            found, marked = self.recall.recalled(key), func.with_attr(REMEMBERED, key)
            return marked if found is None else _stub(marked, found)

        functions = {gvar: replaced(gvar, func) for gvar, func in module.functions.items()}
        return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def _bounds(func: tirx.PrimFunc, known: dict[Any, Bounds]) -> list[tuple[int, int, Bounds]]:
    """The bounds of the dims that are extents of parameters, by parameter and axis."""
    return [
        (position, axis, known[extent])
        for position, param in enumerate(func.params)
        for axis, extent in enumerate(getattr(param.ty, "shape", ()))
        if isinstance(extent, tvm.ir.Var) and extent in known
    ]


def _names(func: tirx.PrimFunc) -> list[str]:
    """The names of the blocks: families go by them, and canonical forms leave them out."""
    found: list[str] = []
    note = ((s_tir.SBlock, lambda block: found.append(str(block.name_hint))),)
    tvm_ffi.structural_walk(func.body, note, order="pre")
    return found


def _stub(func: tirx.PrimFunc, found: Recalled) -> tirx.PrimFunc:
    """A function of the same parameters without loops."""
    scheduled = with_body(func, root(tirx.Evaluate(0))).with_attr("tirx.is_scheduled", True)
    return found.note.onto(scheduled).with_attr(OBJECT, found.object)
