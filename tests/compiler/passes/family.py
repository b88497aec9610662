"""The test graph of a kernel family: its dims and where its tiles end, what it computes in
float64, how close a kernel must come.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.targets.vector_unit import VectorUnit

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, tuple[tuple[Any, ...], str]]

TOLERANCE = {"float32": 2e-5, "float16": 4e-3}
"""By dtype of the result, as a part of its greatest magnitude: float32 sums of a few hundred
products, float16 rounded a few times.
"""


@dataclass(frozen=True)
class Dim:
    """Extents from `least` to `most`; `edges`: sizes of tiles on a machine, around which kernels
    take other paths.
    """

    most: int
    edges: Callable[[VectorUnit], tuple[int, ...]]
    least: int = 1

    def corners(self, unit: VectorUnit) -> list[int]:
        """The ends, a prime, and every edge with its neighbours."""
        near = {edge + step for edge in self.edges(unit) for step in (-1, 0, 1)}
        return sorted(
            extent
            for extent in {self.least, 1, 2, 37, self.most, *near}
            if self.least <= extent <= self.most
        )


@dataclass(frozen=True)
class Family:
    """graph: of `inputs`, whose named dims are `dims`; exact: the same of float64 arrays, integers
    as they are.

    kernel: the family of compiler.passes.cpu that must take it, None where the program comes with
    loops; below: bound of integer inputs; tolerance: in place of the dtype's.
    """

    kernel: str | None
    graph: Callable[..., Any]
    inputs: Inputs
    dims: Mapping[str, Dim]
    exact: Callable[..., Array]
    below: int = 11
    tolerance: float | None = None

    def corners(self, unit: VectorUnit) -> list[dict[str, int]]:
        """Extents with every corner of every dim among them, beside others of the other dims."""
        lists = {name: dim.corners(unit) for name, dim in self.dims.items()}
        turns = range(max(map(len, lists.values())))
        return [
            {
                name: choices[(turn + 3 * number) % len(choices)]
                for number, (name, choices) in enumerate(lists.items())
            }
            for turn in turns
        ]

    def draw(self, extents: Mapping[str, int], seed: int = 0) -> list[Array]:
        """Inputs at the extents: floats standard normal, integers below `below`."""
        random = np.random.default_rng((seed, *extents.values()))
        arrays = []
        for shape, dtype in self.inputs.values():
            size = [extents.get(axis, axis) for axis in shape]
            integer = dtype.startswith(("int", "uint"))
            arrays.append(
                (
                    random.integers(0, self.below, size)
                    if integer
                    else random.standard_normal(size)
                ).astype(dtype)
            )
        return arrays

    def check(self, got: Array, arrays: list[Array]) -> None:
        """The result is of the right shape, and within tolerance."""
        wide = [array.astype("float64") if array.dtype.kind == "f" else array for array in arrays]
        want = self.exact(*wide)
        assert got.shape == want.shape
        if got.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            return
        part = self.tolerance or TOLERANCE[str(got.dtype)]
        np.testing.assert_allclose(
            got.astype("float64"), want, rtol=0, atol=part * max(1.0, np.abs(want).max(initial=0))
        )
