"""The form of a pass: a name, the phase of the pipeline that it belongs to, what it requires of a
module and ensures of its result, and `apply`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

import tvm

from compiler.passes.framework.properties import Property


class Phase(Enum):
    """The phases of a pipeline, in the order in which they run."""

    GRAPH = "graph"
    PACK = "pack"
    TENSOR_PROGRAMS = "tensor programs"
    LOOPS = "loops"
    MEMORY_PLAN = "memory plan"
    VIRTUAL_MACHINE = "virtual machine"
    LOWERED_LOOPS = "lowered loops"
    FUNCTIONS = "functions"
    DEVICE_FUNCTIONS = "device functions"

    @property
    def position(self) -> int:
        """1 for the first phase."""
        return list(Phase).index(self) + 1

    @property
    def is_by_kernel(self) -> bool:
        """Checks that its passes see tensor programs alone, mostly one at a time: from
        `LOWERED_LOOPS` on.
        """
        return self.position >= Phase.LOWERED_LOOPS.position


class Pass(Protocol):
    """One step of a pipeline. Ours are frozen dataclasses whose fields are their options."""

    @property
    def name(self) -> str:
        """TVM's name of the pass, such as `FuseOps` or `tirx.UnrollLoop`."""

    @property
    def phase(self) -> Phase:
        """Where in a pipeline the pass belongs."""

    @property
    def requires(self) -> tuple[Property, ...]:
        """The properties that the module must have."""

    @property
    def ensures(self) -> tuple[Property, ...]:
        """The properties of its result."""

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Returns the rewritten module, or raises PassError. The module given may be changed."""


class ModulePass:
    """The base of our passes: requires and ensures nothing unless a subclass states it."""

    requires: ClassVar[tuple[Property, ...]] = ()
    ensures: ClassVar[tuple[Property, ...]] = ()


@dataclass(frozen=True)
class FromTVM:
    """A pass of TVM in a phase of ours, under TVM's name."""

    phase: Phase
    inner: tvm.transform.Pass
    requires: tuple[Property, ...] = ()
    ensures: tuple[Property, ...] = ()

    @property
    def name(self) -> str:
        """TVM's name of the pass, such as `FuseOps` or `tirx.UnrollLoop`."""
        return str(self.inner.info.name)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Runs TVM's pass in the PassContext of the caller."""
        return self.inner(module)
