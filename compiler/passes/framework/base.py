"""What a pass is: a name, the phase of the pipeline that it belongs to, and `apply`."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import tvm


class Phase(Enum):
    """The phases of a pipeline, in the order in which they run."""

    GRAPH = "graph"
    PACK = "pack"
    TENSOR_PROGRAMS = "tensor programs"
    LOOPS = "loops"
    MEMORY_PLAN = "memory plan"
    VIRTUAL_MACHINE = "virtual machine"

    @property
    def position(self) -> int:
        """1 for the first phase."""
        return list(Phase).index(self) + 1


class Pass(Protocol):
    """One step of a pipeline. Ours are frozen dataclasses whose fields are their options."""

    @property
    def name(self) -> str:
        """The name in errors and dumps, unique among our passes."""

    @property
    def phase(self) -> Phase:
        """Where in a pipeline the pass belongs."""

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Returns the rewritten module, or raises PassError. The module given may be changed."""


@dataclass(frozen=True)
class FromTVM:
    """A pass of TVM in a phase of ours, under TVM's name."""

    phase: Phase
    inner: tvm.transform.Pass

    @property
    def name(self) -> str:
        """As TVM knows the pass, such as `FuseOps`."""
        return str(self.inner.info.name)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        """Runs TVM's pass in the PassContext of the caller."""
        return self.inner(module)
