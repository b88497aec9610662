"""Lets `native` have the vectors and registers of another class of processor, in every process of
the environment in which `python -m tests.vector_unit` runs the tests: compile processes inherit no
variables, so Python imports this module at its start.
"""

import fcntl
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

GEOMETRIES = {
    "128/16": (128, 16, False),
    "128/32": (128, 32, True),
    "256/16": (256, 16, True),
    "512/32": (512, 32, True),
}
"""Bits of a vector, how many registers hold one, and whether the processor has fused products: SSE,
NEON and RISC-V's vectors, AVX2, AVX-512.
"""
_TARGETS = "compiler.targets"


def at_geometry(target: Any, name: str) -> Any:
    """The `Target` scheduled for the vectors and registers of another processor.

    Matmuls of small integers take their portable form: their instructions are of one width each.
    """
    bits, registers, fma = GEOMETRIES[name]
    return replace(target, vector_bits=bits, vector_registers=registers, fma=fma, isa=())


def install(name: str, lock: str) -> None:
    """Build `native` at that geometry in this process from here on, unless nobody locks the file:
    a run that was killed has left it behind.
    """
    with open(lock, encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.meta_path.insert(0, _Finder(name))


def is_installed() -> bool:
    """Tell whether this process builds `native` at another geometry."""
    return any(type(finder).__name__ == _Finder.__name__ for finder in sys.meta_path)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `compiler.targets` as Python does, and gives it another way to detect this machine."""

    def __init__(self, geometry: str) -> None:
        self._geometry = geometry

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find no module but that one."""
        if name != _TARGETS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin, self._geometry)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, geometry: str) -> None:
        super().__init__(name, path)
        self._geometry = geometry

    def exec_module(self, module: Any) -> None:
        """Run the module, then wrap what detects this machine."""
        super().exec_module(module)
        detect = module._native_of

        def detect_at_geometry(machine: object) -> object:
            native = detect(machine)
            return None if native is None else at_geometry(native, self._geometry)

        module._native_of = detect_at_geometry
