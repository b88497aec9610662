"""Every kernel family in one library, called at many extents on the emulated processor."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler.codegen.generate import generate
from compiler.link import library
from compiler.passes.manager import lower
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from compiler.verify.emulation.pc.bochs import Ended
from tests.avx512.programs import Driver
from tests.compiler.conftest import build_module
from tests.compiler.passes.families import FAMILIES, Array, combine


@dataclass(frozen=True)
class Case:
    """One family at one point of its dims."""

    family: str
    extents: dict[str, int]
    inputs: list[Array]

    def check(self, got: Array) -> None:
        """The result is close to float64's; raises AssertionError."""
        FAMILIES[self.family].check(got, self.inputs)

    def close(self, got: Array) -> bool:
        """True if `check` passes."""
        try:
            self.check(got)
        except AssertionError:
            return False
        return True

    def difference(self, got: Array) -> float:
        """The greatest difference from float64's result, as a part of its greatest magnitude."""
        wide = [
            array.astype("float64") if array.dtype.kind == "f" else array for array in self.inputs
        ]
        want = FAMILIES[self.family].exact(*wide)
        return float(np.abs(got - want).max(initial=0) / max(1.0, np.abs(want).max(initial=0)))


@dataclass(frozen=True)
class Kernels:
    """A library with the families `names`, and what calls it."""

    target: Target
    names: Sequence[str]
    library: Path
    driver: Driver

    @classmethod
    def build(cls, target: Target, names: Sequence[str], folder: Path) -> "Kernels":
        """Compile the families into the folder; raises CompileError."""
        module = build_module(*combine(names))
        linked = library.link_library(generate(lower(module, target, {}), target), folder, target)
        return cls(target, tuple(names), linked, Driver.build(folder / "driver", target))

    def turns(self) -> int:
        """How many calls have every corner of every family among them."""
        return max(len(corners) for corners in self._corners().values())

    def cases(self, turn: int) -> list[Case]:
        """A point of each family; other turns give other points."""
        chosen = {name: corners[turn % len(corners)] for name, corners in self._corners().items()}
        return [
            Case(name, extents, FAMILIES[name].draw(extents)) for name, extents in chosen.items()
        ]

    def call(self, processor: str, turn: int, seconds: float) -> tuple[Ended, list[Array]]:
        """Call the library with the cases of a turn."""
        inputs = [array for case in self.cases(turn) for array in case.inputs]
        return self.driver.call(processor, self.library, inputs, seconds)

    def results(self, turn: int, seconds: float) -> Iterator[tuple[Case, Array]]:
        """Every case of the turn with what the emulated processor computed; raises AssertionError
        where it stopped.
        """
        (processor,) = self.target.emulator or ()
        ended, arrays = self.call(processor, turn, seconds)
        assert ended.status == 0, f"turn {turn} ended with {ended.status}: {ended.printed}"
        yield from zip(self.cases(turn), arrays, strict=True)

    def _corners(self) -> dict[str, list[dict[str, int]]]:
        return {name: FAMILIES[name].corners(VectorUnit.of(self.target)) for name in self.names}
