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
from tests.avx512 import programs
from tests.avx512.machine import Outcome, Processor
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
    """A library with the families `names`, and its driver in the same folder."""

    target: Target
    names: Sequence[str]
    library: Path
    driver: Path

    @classmethod
    def build(cls, target: Target, names: Sequence[str], folder: Path) -> "Kernels":
        """Compile the families into the folder; raises CompileError."""
        module = build_module(*combine(names))
        linked = library.link_library(generate(lower(module, target, {}), target), folder, target)
        programs.build_driver(
            [programs.package("tvm") / "lib" / programs.RUNTIME], folder / "driver", target
        )
        return cls(target, tuple(names), linked, folder / "driver")

    def turns(self) -> int:
        """How many calls have every corner of every family among them."""
        return max(len(corners) for corners in self._corners().values())

    def cases(self, turn: int) -> list[Case]:
        """A point of each family; other turns give other points."""
        chosen = {name: corners[turn % len(corners)] for name, corners in self._corners().items()}
        return [
            Case(name, extents, FAMILIES[name].draw(extents)) for name, extents in chosen.items()
        ]

    def start(self, processor: Processor, turns: Sequence[int], seconds: int) -> Outcome:
        """One call for each turn; seconds: of processor time for all of them."""
        calls = [[array for case in self.cases(turn) for array in case.inputs] for turn in turns]
        return programs.start(processor, self.driver, self.library, calls, seconds=seconds)

    def results(self, outcome: Outcome, turns: Sequence[int]) -> Iterator[tuple[Case, Array]]:
        """Every case of the turns with what the emulated processor computed; raises AssertionError
        where it stopped.
        """
        for turn, arrays in zip(turns, programs.results(outcome, self.driver.parent), strict=True):
            yield from zip(self.cases(turn), arrays, strict=True)

    def _corners(self) -> dict[str, list[dict[str, int]]]:
        return {name: FAMILIES[name].corners(VectorUnit.of(self.target)) for name in self.names}
