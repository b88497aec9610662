"""Checks between passes."""

from dataclasses import dataclass

import pytest
import tvm
from tvm import relax

from compiler import targets
from compiler.codegen.standalone.kernels import compile_kernels
from compiler.errors import CodegenError, PassError
from compiler.passes import manager
from compiler.passes.framework import checks
from compiler.passes.framework.base import ModulePass, Pass, Phase
from compiler.passes.framework.checks import CheckPasses
from compiler.passes.framework.properties import Property
from compiler.passes.manager import Lowering
from compiler.passes.pipelines import Interface
from relaxd.contract.options import Flavour
from tests.compiler.conftest import HOST, build_module
from tests.compiler.passes.families import combine

op = relax.op


def module() -> tvm.IRModule:
    return build_module(lambda builder, x: op.add(x, x), {"x": (("n", 4), "float32")})


@dataclass(frozen=True)
class Promising(ModulePass):
    """Changes nothing."""

    name = "promising"
    phase = Phase.GRAPH
    ensures = (Property.TENSOR_PROGRAMS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        return module


@dataclass(frozen=True)
class Demanding(ModulePass):
    """Changes nothing."""

    name = "demanding"
    phase = Phase.GRAPH
    requires = (Property.TENSOR_PROGRAMS,)

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        return module


@pytest.mark.parametrize(
    ("step", "code"), [(Promising(), "pass.ensures"), (Demanding(), "pass.requires")]
)
def test_what_a_pass_states_is_checked(step: Pass, code: str) -> None:
    with pytest.raises(PassError, match="tensor_programs: every operator is") as caught:
        manager.run((step,), module(), (CheckPasses(),))
    assert caught.value.code == code
    assert caught.value.failure.pass_name == step.name
    manager.run((step,), module())


def test_the_environment_asks_for_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(checks.VARIABLE, "1")
    with pytest.raises(PassError):
        manager.run((Demanding(),), module())


@pytest.mark.parametrize(
    "name", ["native", "aarch64", "riscv64-v", "ios-arm64", "cortex-m4", "rv32imc"]
)
def test_what_passes_state_holds_down_to_functions(name: str) -> None:
    target, check = targets.resolve(name), (CheckPasses(),)
    kernels = manager.to_kernels(
        build_module(*combine(("product", "softmax", "layer norm", "attention"))),
        target,
        {},
        check,
    )
    if not target.platform.bare:
        machine = manager.to_machine(kernels, target, {}, check)
        programs = {g: f for g, f in machine.functions.items() if isinstance(f, tvm.tirx.PrimFunc)}
        assert Property.NO_VECTOR_LOOPS.holds(
            Lowering(target, observers=check).lower(tvm.IRModule(programs))
        )
    compile_kernels(kernels, target, "relaxd_m", threads=False, observers=check)


def test_a_failing_pass_of_code_generation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = manager.to_kernels(module(), HOST, {})
    interface = Interface(Flavour.STANDALONE, "relaxd_m")
    assert "flatten_buffers" in {step.name for step in Lowering(HOST, interface)._steps}

    def fail(self: object, module: tvm.IRModule) -> tvm.IRModule:
        raise ValueError("no such buffer")

    from compiler.passes.lower.loops.flatten_buffers import FlattenBuffers

    monkeypatch.setattr(FlattenBuffers, "apply", fail)
    with pytest.raises(CodegenError, match="pass flatten_buffers: no such buffer") as caught:
        compile_kernels(kernels, HOST, "relaxd_m", threads=True)
    assert caught.value.failure.pass_name == "flatten_buffers"
