"""Other choices than the compiler's for tiles, panels and passes, used while kernels are built.

A candidate replaces the figures of `compiler.passes.cpu.shared.register_tile`,
`matmul.plan` and `VectorUnit`; nothing else of the kernels changes.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from compiler.passes.cpu.families.matmul.plan import Tiling, tiling_for
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit

_CPU = "compiler.passes.cpu"
_PACKING = (
    "compiler.passes.pack.matmul.panel_width",
    "compiler.passes.pack.conv.panel_width",
)
_WIDTHS = f"{_CPU}.families.matmul.match.panel_widths"
_TILING = f"{_CPU}.families.matmul.match.tiling_for"
_UNIT = "compiler.passes.pipelines.VectorUnit.of"


@dataclass(frozen=True)
class Candidate:
    """Numbers in place of the compiler's; None leaves its own.

    rows, vectors: of the register tile, vectors of columns; unroll: steps of the innermost loop;
    share: of L1 that one pass by one panel takes; tiles, panels: of a task.
    """

    rows: int | None = None
    vectors: int | None = None
    unroll: int | None = None
    share: float | None = None
    tiles: int | None = None
    panels: int | None = None

    def __str__(self) -> str:
        chosen = {name: value for name, value in vars(self).items() if value is not None}
        return ", ".join(f"{name} {value}" for name, value in chosen.items()) or "as compiled"

    @contextmanager
    def apply(self, target: Target) -> Iterator[None]:
        """Have kernels built with this candidate's choices."""
        unit = VectorUnit.of(target)
        if self.unroll is not None:
            unit = replace(unit, unroll=self.unroll)
        width = None if self.vectors is None else self.vectors * unit.lanes(32)
        changed: dict[str, Any] = {_UNIT: lambda target: unit, _TILING: self._tiling}
        if width is not None:
            changed |= {name: lambda unit, columns: width for name in _PACKING}
            changed[_WIDTHS] = lambda unit: (width,)
        with ExitStack() as stack:
            for name, value in changed.items():
                stack.enter_context(patch(name, value))
            yield

    def _tiling(self, unit: VectorUnit, width: int, depth: int, run: int | None = None) -> Tiling:
        """The compiler's tiling with this candidate's figures in place of its own."""
        own = tiling_for(unit, width, depth, run)
        mr, kc = self.rows or own.mr, own.kc
        if self.share is not None and run is None:
            passes = max(-(-depth // max(int(self.share * unit.l1) // (4 * width), 1)), 1)
            kc = -(-depth // unit.unroll // passes) * unit.unroll
        return replace(
            own, mr=mr, kc=kc, tiles=self.tiles or own.tiles, panels=self.panels or own.panels
        )


def candidates_for(unit: VectorUnit) -> list[Candidate]:
    """The candidates for a vector unit, the compiler's choice first: every register tile of two to
    four vectors that nearly fills the registers, other depths of passes, other unrolling.
    """
    fits: Callable[[int, int], bool] = lambda rows, vectors: (  # noqa: E731
        unit.registers * 3 // 4 <= rows * vectors + vectors + 1 <= unit.registers
    )
    shapes = [(rows, vectors) for vectors in (2, 3, 4) for rows in range(2, 16)]
    return [
        Candidate(),
        *(Candidate(rows, vectors) for rows, vectors in shapes if fits(rows, vectors)),
        *(Candidate(share=share) for share in (0.5, 0.75, 1.0, 2.0)),
        *(Candidate(unroll=unroll) for unroll in (1, 2, 8)),
        *(Candidate(tiles=tiles) for tiles in (8, 32)),
        *(Candidate(panels=panels) for panels in (1, 2, 4, 8)),
    ]
