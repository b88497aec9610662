"""The architectures that the compiler knows, in the order of the registry."""

from compiler.targets import arm, cortex_m, riscv, wasm, x86
from compiler.targets.architecture import Architecture

ARCHITECTURES = (
    x86.X86_64,
    arm.AARCH64,
    arm.ARMV7L,
    riscv.RISCV64,
    wasm.WASM32,
    cortex_m.CORTEX_M,
)

_BY_NAME = {architecture.name: architecture for architecture in ARCHITECTURES}


def find_architecture(name: str) -> Architecture | None:
    """The architecture that `uname -m` calls so; None for one that the compiler does not know."""
    return _BY_NAME.get(name)


def architecture_of(name: str) -> Architecture:
    """The architecture of a target that the registry made; raises KeyError for any other name."""
    return _BY_NAME[name]
