"""Replaces tensor programs by stubs where an earlier build has stored the object of the same
kernel.

A kernel depends on its program, the target and the bounds of its dims alone, so that neither its
loops nor their lowering have to be computed again.
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
class StoredKernel:
    """A kernel of an earlier build: the note that its scheduling left, and its object's key."""

    note: KernelNote
    object: str


class Recall(Protocol):
    """The kernels of earlier builds."""

    def key(self, name: str, program: tirx.PrimFunc, context: str, target: Target) -> str | None:
        """The key of an unscheduled program; None for one that has no canonical form.

        context: what its loops depend on beside its canonical form and the target.
        """

    def find(self, key: str) -> StoredKernel | None:
        """The kernel of a program with this key, None unless its object can still be linked."""


@dataclass(frozen=True)
class RecallKernels(ModulePass):
    """Marks programs with the key under which code generation stores their kernels, and replaces
    those that are stored already by stubs.
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

        def replace(gvar: tvm.ir.GlobalVar, func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
            if not isinstance(func, tirx.PrimFunc):
                return func
            context = json.dumps([repr(unit), _bounds(func, known.get(gvar, {})), _names(func)])
            key = self.recall.key(gvar.name_hint, func, context, self.target)
            if key is None:
                return func
            kernel, marked = self.recall.find(key), func.with_attr(REMEMBERED, key)
            return marked if kernel is None else _make_stub(marked, kernel)

        functions = {gvar: replace(gvar, func) for gvar, func in module.functions.items()}
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
    """The names of the blocks, by which families match; canonical forms leave them out."""
    names: list[str] = []
    note = ((s_tir.SBlock, lambda block: names.append(str(block.name_hint))),)
    tvm_ffi.structural_walk(func.body, note, order="pre")
    return names


def _make_stub(func: tirx.PrimFunc, kernel: StoredKernel) -> tirx.PrimFunc:
    """A function of the same parameters without loops."""
    scheduled = with_body(func, root(tirx.Evaluate(0))).with_attr("tirx.is_scheduled", True)
    return kernel.note.onto(scheduled).with_attr(OBJECT, kernel.object)
