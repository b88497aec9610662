"""Observers see the passes of a pipeline."""

from dataclasses import dataclass, field

import pytest
import tvm
from tvm import relax

from compiler import targets
from compiler.errors import PassError
from compiler.passes import manager
from compiler.passes.framework.base import FromTVM, ModulePass, Pass, Phase
from compiler.passes.framework.checks import CheckPasses
from compiler.passes.framework.observers import Observer, Timing
from tests.compiler.conftest import HOST, build_module

MODULE = build_module(lambda builder, x: relax.op.add(x, x), {"x": (("n",), "float32")})


@dataclass(frozen=True)
class Nothing(ModulePass):
    """Returns a fresh copy of the module."""

    name: str
    phase: Phase

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        return tvm.IRModule(module.functions)


@dataclass(frozen=True)
class Failing(ModulePass):
    name = "failing"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        raise ValueError("no")


@dataclass(frozen=True)
class Unbinding(ModulePass):
    """Leaves a function that reads a variable which nothing binds."""

    name = "unbinding"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        main = module["main"]
        return tvm.IRModule({"main": relax.Function([], main.body, main.ret_ty)})


@dataclass
class Story(Observer):
    events: list[str] = field(default_factory=list)

    def before(self, step: Pass, module: tvm.IRModule) -> None:
        self.events.append(f"before {step.name}")

    def after(self, step: Pass, module: tvm.IRModule) -> None:
        self.events.append(f"after {step.name}")

    def after_failure(self, step: Pass, module: tvm.IRModule) -> None:
        self.events.append(f"failed {step.name}")

    def phase_ended(self, phase: Phase, module: tvm.IRModule) -> None:
        self.events.append(f"end of {phase.value}")


def test_every_pass_and_phase_is_seen_up_to_the_one_that_fails() -> None:
    story = Story()
    steps = (Nothing("a", Phase.GRAPH), Nothing("b", Phase.GRAPH), Failing())
    with pytest.raises(PassError):
        manager.run(steps, MODULE, (story,))
    assert story.events == [
        "before a",
        "after a",
        "before b",
        "after b",
        "end of graph",
        "before failing",
        "failed failing",
    ]


def test_passes_are_timed() -> None:
    timing = Timing()
    steps = (Nothing("a", Phase.GRAPH), Nothing("b", Phase.PACK), Nothing("c", Phase.PACK))
    manager.run(steps, MODULE, (timing,))
    assert [(phase, name) for phase, name, _ in timing.rows] == [
        (Phase.GRAPH, "a"),
        (Phase.PACK, "b"),
        (Phase.PACK, "c"),
    ]
    assert list(timing.phases()) == [Phase.GRAPH, Phase.PACK]
    assert all(seconds > 0 for seconds in timing.phases().values())


def test_a_pass_that_breaks_the_module_is_found() -> None:
    manager.run((FromTVM(Phase.GRAPH, relax.transform.FoldConstant()),), MODULE, (CheckPasses(),))
    with pytest.raises(Exception, match="is not defined"):
        manager.run((Unbinding(),), MODULE, (CheckPasses(),))


@pytest.mark.parametrize("name", ["opencl", "native"])
def test_modules_are_well_formed_behind_every_pass(name: str) -> None:
    target = HOST if name == "native" else targets.resolve(name)
    manager.lower(MODULE, target, {}, (CheckPasses(),))
