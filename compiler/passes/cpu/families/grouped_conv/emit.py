"""Convolutions over images that are padded already, of any rank, in groups or not: a window is read
where it lies.

Output channels come in blocks that read the same input channels. A task computes some places by a
range of panels: the sums of a few places by one panel stay in registers over the whole window.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from compiler.passes.cpu.shared.register_tile import along, rows_for, tile
from compiler.passes.cpu.shared.windowed import PanelSums, emit_panel_sums, read_panel_sums
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.exprs import Expr, Table, as_int, const, fixed, load, substitute
from compiler.tir.loops import (
    PARALLEL_FLOPS,
    Stmt,
    allocate,
    hidden,
    seq,
    serial,
    share_out,
    some_of,
    store,
    strips,
)
from compiler.tir.stages import Program

STAGE = "direct_conv"
"""Name of the program's stage, by which the kernel is found."""
UNROLL = 16
"""Channels of a block up to which all of them are taken in a row."""


def read_direct(program: Program) -> PanelSums | None:
    """The program as `compiler.passes.pack.conv` writes it for this family; None for another.

    Its weights are [blocks, panels, depth, width].
    """
    return read_panel_sums(program, STAGE)


def emit_direct(direct: PanelSums, unit: VectorUnit) -> Stmt:
    """The kernel."""
    return emit_panel_sums(direct, lambda known, m: _Kernel(known, unit, m).emit())


@dataclass(frozen=True)
class _Kernel:
    direct: PanelSums
    unit: VectorUnit
    m: Expr

    @property
    def blocks(self) -> int:
        return self.direct.packed[0]

    @property
    def panels(self) -> int:
        """Panels of a block."""
        return self.direct.packed[1]

    @property
    def columns(self) -> int:
        """Output channels of a block."""
        return fixed(self.direct.column.extent) // self.blocks

    @property
    def channels(self) -> int:
        """Input channels of a block."""
        return fixed(self.direct.along.extent)

    @property
    def depth(self) -> int:
        """Products in a sum."""
        return self.direct.packed[2]

    @property
    def width(self) -> int:
        return self.direct.packed[3]

    @property
    def vectors(self) -> int:
        return self.width // self.unit.lanes(32)

    @property
    def height(self) -> int:
        """Places of a register tile: enough sums to hide the latency of a product, few enough
        addresses for the registers.
        """
        return min(rows_for(self.unit, self.vectors), 8)

    @property
    def places(self) -> int:
        """Places of a task: more where the weights do not stay in the cache between two tasks."""
        heavy = 4 * self.depth * self.width * self.total > self.unit.l2 // 2
        return self.height * (8 if heavy else 2)

    @property
    def total(self) -> int:
        """Panels of all blocks."""
        return self.blocks * self.panels

    @property
    def share(self) -> int:
        """Panels of a task: whole blocks, so that their results stay in the cache."""
        blocks = max(256 // (self.panels * self.width), 1)
        return min(blocks, self.blocks) * self.panels

    def emit(self) -> Stmt:
        shares = -(-self.total // self.share)
        total = tirx.ceildiv(self.m, const(self.places)) * const(shares)
        work = self.m * const(2 * self.depth * self.width * self.total)

        def task(t: Expr) -> Stmt:
            return self._task(
                t // const(shares) * const(self.places), t % const(shares) * const(self.share)
            )

        # Where several extents are open they are those of images, whose places are many.
        images = [as_int(axis.extent) for axis in self.direct.rows].count(None) > 1
        return share_out(total, images or work >= const(PARALLEL_FLOPS), task)

    def _task(self, first: Expr, panel: Expr) -> Stmt:
        places, share, width = self.places, self.share, self.width
        bases, made = allocate([places], "int64", "bases")
        sums, more = allocate([places * share * width], "float32", "sums", "global")
        count = tirx.min(const(places), self.m - first)
        panels = some_of(self.total, share, panel)

        def base(r: Expr) -> Stmt:
            return self.direct.at(
                tirx.min(first + r, self.m - const(1)),
                lambda at: store(bases, substitute(self.direct.place, at), r),
            )

        def tiles(p: Expr) -> Stmt:
            height = const(self.height)
            return serial(
                tirx.ceildiv(count, height),
                lambda t: self._tile(bases, sums, t * height, panel + p, p),
                "tile",
            )

        return seq(
            made,
            more,
            serial(places, base),
            serial(panels, tiles, "panel"),
            self._finish(sums, first, count, panel, panels),
        )

    def _tile(self, bases: Any, sums: Any, row: Expr, panel: Expr, p: Expr) -> Stmt:
        """`height` places by one panel, over the whole window."""
        height, width, channels = self.height, self.width, self.channels
        acc, allocation = allocate([height, width], "float32", "acc")
        places = [tirx.Var(f"a{i}", "int64") for i in range(height)]
        channel = panel // const(self.panels) * const(channels)
        binds = [
            tirx.Bind(var, load(bases, [row + const(i)]) + channel) for i, var in enumerate(places)
        ]
        each = partial(tile, height, width, self.unit.lanes(32))

        def step(position: Expr, moved: Expr, c: Expr) -> Stmt:
            weight = (panel * const(self.depth) + position * const(channels) + c) * const(width)

            def term(i: int, lane: Expr) -> Expr:
                return load(self.direct.source, [places[i] + moved + c]) * load(
                    self.direct.weights, [weight + lane]
                )

            return each(
                lambda i, lane: store(
                    acc, load(acc, [const(i), lane]) + term(i, lane), const(i), lane
                )
            )

        def over_channels(position: Expr, moved: Expr) -> Stmt:
            one = partial(step, position, moved)
            return along(const(channels), channels if channels <= UNROLL else 1)(one)

        def keep(i: int, lane: Expr) -> Stmt:
            place = ((row + const(i)) * const(self.share) + p) * const(width)
            return store(sums, load(acc, [const(i), lane]), place + lane)

        clear = each(lambda i, lane: store(acc, tirx.const(0, "float32"), const(i), lane))
        window = self.direct.over_window(over_channels, lambda extent: hidden(extent, self.m))
        return seq(allocation, *binds, clear, window, each(keep))

    def _finish(self, sums: Any, first: Expr, count: Expr, panel: Expr, panels: Expr) -> Stmt:
        """What was fused behind the convolution, place by place."""
        direct = self.direct

        def block(at: Table, row: Expr, b: Expr) -> Stmt:
            start = (row * const(self.share) + b * const(self.panels)) * const(self.width)
            column = (panel // const(self.panels) + b) * const(self.columns)

            def point(j: Expr) -> Stmt:
                return direct.epilogue.write(
                    load(sums, [start + j]), {**at, direct.column.var: column + j}
                )

            return strips(const(self.columns), self.unit.lanes(32), point)

        blocks = panels // const(self.panels) if self.panels > 1 else panels
        return serial(
            count,
            lambda r: direct.at(
                first + r, lambda at: serial(blocks, lambda b: block(at, r, b), "block")
            ),
            "row",
        )
