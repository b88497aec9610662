"""Every kernel family in one program for processors that this machine need not be: their registers,
and NEON under qemu.
"""

import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from compiler import runtimes, targets
from compiler.codegen.generate import generate
from compiler.link import library
from compiler.passes.cpu.shared.register_tile import register_tile
from compiler.passes.manager import lower
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from compiler.verify.emulation import emulator, program, tensors
from relaxd.contract.options import Flavour
from tests.compiler.conftest import assembly, build_module
from tests.compiler.passes.assembly import kernels, of_kind
from tests.compiler.passes.families import FAMILIES, Array, combine

pytestmark = pytest.mark.slow

NEON, DOT = targets.resolve("aarch64"), targets.resolve("aarch64-v8.2")
TILED = (
    "product",
    "convolution",
    "winograd",
    "attention",
    "both computed",
    "depthwise convolution",
    "convolution in groups",
)
NAMES = {
    "x86-64-v4": (*TILED, "convolution to many channels"),
    "aarch64": (
        *TILED, "product in passes", "max pool", "lstm", "gru", "elementwise half", "softmax",
    "layer norm", "row sums",
        "column maxima", "transpose", "take", "concat", "resize",
    ),
    "aarch64-v8.2": ("quantized matmul", "quantized matmul less a zero point", "quantized "
                                                                                 "convolution"),
}  # fmt: skip
TILES = {"x86-64-v4": (13, 32), "aarch64": (13, 8)}
VECTORS = {"x86-64-v4": ("zmm",), "aarch64": (".4s", "q")}
ACCUMULATORS: dict[str, dict[str, tuple[int, ...]]] = {
    "x86-64-v4": {
        "panel_matmul": (4 * 24,),
        "panel_conv": (4 * 24, 13),
        "winograd_conv": (4 * 12,),
        "attention": (4 * 12,),
        "fused_matmul": (4 * 8,),
    },
    "aarch64": {
        "panel_matmul": (24,),
        "panel_conv": (24,),
        "winograd_conv": (12,),
        "attention": (12,),
        "fused_matmul": (8,),
        "lstm": (24,),
        "gru": (16,),
    },
}
"""Products of whole vectors in the innermost loops of a kind of kernel: as many as the loop has
sums, for each of its steps in a row. 20 columns fill a vector of 16 and half of one.
"""
ELSEWHERE: dict[str, dict[str, tuple[str, ...]]] = {
    "x86-64-v4": {"grouped_conv": ("ymm",), "depthwise_conv": ("zmm",)},
    "aarch64": {"grouped_conv": VECTORS["aarch64"], "depthwise_conv": VECTORS["aarch64"]},
}
"""Kernels whose innermost loops have branches or are unrolled, each with the registers that hold
its sums: groups of six columns fill half of a vector of 16.
"""


@cache
def executable(name: str) -> Any:
    """The families for a target, not linked yet."""
    target = targets.resolve(name)
    return generate(lower(build_module(*combine(NAMES[name])), target, {}), target)


@pytest.mark.long
@pytest.mark.parametrize("name", ACCUMULATORS)
def test_accumulators_stay_in_full_registers(name: str) -> None:
    assert register_tile(VectorUnit.of(targets.resolve(name))) == TILES[name]
    code = kernels(assembly(executable(name)))
    for kind, accumulators in ACCUMULATORS[name].items():
        loops = [loop for kernel in of_kind(code, kind) for loop in kernel.loops()]
        hearts = [loop for loop in loops if loop.multiply_adds(*VECTORS[name]) in accumulators]
        assert {loop.multiply_adds(*VECTORS[name]) for loop in hearts} == set(accumulators), kind
        assert sum(loop.spills() for loop in hearts) == 0, kind
    for kind, registers in ELSEWHERE[name].items():
        assert max(kernel.multiply_adds(*registers) for kernel in of_kind(code, kind)) >= 8, kind


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Target, list[Array]], list[Array]]:
    """The inputs of all a target's families, in order, to their results, in its code."""

    @cache
    def built(target: Target) -> tuple[list[str], Path]:
        runner = emulator.find(target, Flavour.VM)
        if isinstance(runner, str):
            pytest.skip(runner)
        folder = tmp_path_factory.mktemp(target.name)
        linked = library.link_library(executable(target.name), folder, target)
        for path in runtimes.find(target.platform).glob("libtvm_runtime*.so"):
            shutil.copy(path, folder)
        program.build(folder, target, folder / "program")
        tensors.write(folder / "weights", [])
        return [
            *runner.command,
            *(
                str(folder / name)
                for name in ("program", linked.name, "weights", "inputs", "outputs")
            ),
        ], folder

    def call(target: Target, arrays: list[Array]) -> list[Array]:
        command, folder = built(target)
        tensors.write(folder / "inputs", arrays)
        subprocess.run(command, check=True, capture_output=True)
        return tensors.read(folder / "outputs")

    return call


@pytest.mark.parametrize("turn", range(10))
@pytest.mark.parametrize("target", [NEON, DOT], ids=lambda target: target.name)
def test_neon_code_is_close_to_float64(
    target: Target, turn: int, run: Callable[[Target, list[Array]], list[Array]]
) -> None:
    inputs = {}
    for name in NAMES[target.name]:
        corners = FAMILIES[name].corners(VectorUnit.of(target))
        inputs[name] = FAMILIES[name].draw(corners[turn % len(corners)])
    results = run(target, [array for arrays in inputs.values() for array in arrays])
    for (name, arrays), got in zip(inputs.items(), results, strict=True):
        FAMILIES[name].check(got, arrays)
