import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.modules.setdefault("torch", None)

import tvm  # noqa: E402
from tvm import relax  # noqa: E402

from compiler.codegen.generate import generate  # noqa: E402
from compiler.isolation.messages import Event  # noqa: E402
from compiler.passes.framework.checks import CheckPasses  # noqa: E402
from compiler.passes.manager import lower  # noqa: E402
from compiler.targets import Target  # noqa: E402
from relaxd.contract.bundle.manifest import Manifest  # noqa: E402
from tests.compiler.building import build  # noqa: E402
from tests.support import geometries  # noqa: E402

HOST = geometries.host()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest, list[Event]]:
    """A bundle of a tiny model, its manifest, and what its build announced."""
    events: list[Event] = []
    output = tmp_path_factory.mktemp("build") / "out"
    return output, build(output, on_event=events.append), events


def build_module(
    function: Callable[..., Any], inputs: dict[str, tuple[tuple[Any, ...], str]]
) -> tvm.IRModule:
    """A module whose `main` applies `function` to inputs; equal names in shapes are one symbolic
    dim.
    """
    dims: dict[str, Any] = {}
    variables = []
    for name, (shape, dtype) in inputs.items():
        axes = [
            dims.setdefault(axis, tvm.tirx.Var(axis, "int64")) if isinstance(axis, str) else axis
            for axis in shape
        ]
        variables.append(relax.Var(name, relax.TensorType(axes, dtype)))
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(function(builder, *variables))
        builder.emit_func_output(result)
    return builder.get()


def machine_target(target: Any = HOST) -> tvm.target.Target:
    return tvm.target.Target(
        {
            "kind": "llvm",
            "mtriple": target.triple,
            "mcpu": target.cpu,
            "mattr": list(target.features),
        }
    )


def assembly(executable: relax.VMExecutable) -> str:
    """That of all programs of an executable."""
    return "\n".join(module.inspect_source("asm") for module in executable.mod.imports)


class Compiled:
    """A module compiled for this machine, or for another whose code runs here; calling it takes and
    gives numpy arrays.
    """

    def __init__(self, module: tvm.IRModule, target: Target = HOST) -> None:
        lowered = lower(module, target, {}, (CheckPasses(),))
        self.machine = relax.VirtualMachine(generate(lowered, target), tvm.cpu())

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        return self.machine["main"](
            *(tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays)
        ).numpy()


@pytest.fixture
def compile_graph() -> Callable[..., Compiled]:
    return lambda function, inputs: Compiled(build_module(function, inputs))


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def assembly_for() -> Callable[..., str]:
    """The assembly of a graph compiled for any target."""

    def build(
        function: Callable[..., Any], inputs: dict[str, tuple[tuple[Any, ...], str]], target: Any
    ) -> str:
        executable = generate(lower(build_module(function, inputs), target, {}), target)
        return assembly(executable)

    return build
