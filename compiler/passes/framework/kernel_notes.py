"""Notes on kernels, kept as attributes of their PrimFuncs while the pipeline runs: which family or
rule scheduled each, with which tile, and why the others declined.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.framework.attributes import FAMILY
from compiler.passes.framework.base import Phase
from compiler.passes.framework.programs import ProgramPass

TILE = "relaxd.tile"
DECLINED = "relaxd.declined"

REMEMBERED = "relaxd.remembered"
"""The attribute of a kernel that code generation is to note for later builds: the key of the
note."""
FOREIGN = "given"
"""The family of kernels whose loops were not written here: the importers and TVM bring some."""


@dataclass(frozen=True)
class KernelNote:
    """family: the family or rule that scheduled the kernel; tile: empty if the family has none.

    declined: by family, its reason; families that come after the one that took the kernel were
    not asked.
    """

    family: str
    tile: str = ""
    declined: Mapping[str, str] = field(default_factory=dict)

    def onto(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Attaches the note to a kernel."""
        attributes: dict[str, Any] = {FAMILY: self.family}
        if self.tile:
            attributes[TILE] = self.tile
        if self.declined:
            # A map would be sorted by name, a list keeps the order in which families were asked.
            attributes[DECLINED] = [f"{name}: {reason}" for name, reason in self.declined.items()]
        return func.with_attr(attributes)

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> "KernelNote":
        """Reads the note of a kernel."""
        attributes = func.attrs or {}
        answers = (str(answer).partition(": ") for answer in attributes.get(DECLINED, ()))
        return cls(
            str(attributes.get(FAMILY, FOREIGN)),
            str(attributes.get(TILE, "")),
            {name: reason for name, _, reason in answers},
        )


def kernel_table(
    module: tvm.IRModule,
    nodes: Mapping[str, Sequence[str]] = MappingProxyType({}),
    work: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """The notes of all kernels by name, as `kernels.json` and `relaxd families` show them; nodes:
    by kernel, what it computes of the model; work: by kernel, as `KernelWork` counts it.
    """
    kernels = {
        gvar.name_hint: func
        for gvar, func in module.functions.items()
        if isinstance(func, tirx.PrimFunc)
    }
    return [
        {
            "name": name,
            **asdict(KernelNote.of(kernels[name])),
            "nodes": list(nodes.get(name, ())),
            **work.get(name, {}),
        }
        for name in sorted(kernels)
    ]


@dataclass(frozen=True)
class DropKernelNotes(ProgramPass):
    """Removes the notes but for the family, which decides what code generation simplifies, and
    those that code generation is to leave for later builds.
    """

    name = "drop_kernel_notes"
    phase = Phase.VIRTUAL_MACHINE

    def rewrite(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Removes the notes of a program."""
        return func if REMEMBERED in (func.attrs or {}) else bare(func)


def bare(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel with no note but the family."""
    for attribute in (TILE, DECLINED, REMEMBERED):
        if attribute in (func.attrs or {}):
            func = func.without_attr(attribute)
    return func
