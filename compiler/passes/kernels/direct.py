"""Convolutions over images that are padded already, of any rank, in groups or not: a window is read where it lies.

Output channels come in blocks that read the same input channels. A task computes some places by a range of panels: the sums of a
few places by one panel stay in registers over the whole window.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from compiler.passes.kernels.anchor import Anchored, read_anchored
from compiler.passes.kernels.gemm import PARALLEL_FLOPS
from compiler.passes.kernels.micro import across, rows_for
from compiler.passes.kernels.nest import combine_of, vectorizable
from compiler.passes.machine import Machine
from compiler.passes.tir.exprs import Expr, as_int, const, load, rewrite, substitute
from compiler.passes.tir.flat import stride
from compiler.passes.tir.loops import (
    Stmt,
    allocate,
    bind_all,
    bind_opaque,
    parallel,
    product,
    seq,
    serial,
    store,
    strips,
    unfuse,
    unrolled,
    when,
)
from compiler.passes.tir.stages import Axis, Program

STAGE = "direct_conv"
"""Name of the program's stage, by which the kernel is found."""
UNROLL = 16
"""Channels of a block up to which the loop over them is unrolled."""

Table = dict[Any, Expr]


@dataclass(frozen=True)
class Direct:
    """sum over `window` and the channels of a block: source[place + window + channel] * weights, for `rows` x columns.

    place: the flat offset of the window's first element for a place of the result; steps: by how much each axis of the window
    moves it; weights: the flat buffer [blocks, panels, depth, width].
    """

    rows: tuple[Axis, ...]
    column: Axis
    window: tuple[Axis, ...]
    steps: tuple[Expr, ...]
    source: Any
    place: Expr
    weights: Any
    blocks: int
    panels: int
    channels: int
    width: int
    anchored: Anchored

    @property
    def columns(self) -> int:
        """Output channels of a block."""
        return (as_int(self.column.extent) or 0) // self.blocks

    @property
    def depth(self) -> int:
        """Products in a sum."""
        size = self.channels
        for axis in self.window:
            size *= as_int(axis.extent) or 1
        return size


def read_direct(program: Program) -> Direct | None:
    """The program as `compiler.passes.pack_conv` writes it for this family, with whatever was fused behind it; None for another."""
    if program.stages[0].name != STAGE:
        return None
    anchored = read_anchored(program)
    combine = None if anchored is None else combine_of(anchored.anchor)
    if anchored is None or combine is None:
        return None
    *rows, column = anchored.anchor.spatial
    *window, channel = anchored.anchor.reduced
    outputs = [value for part in anchored.parts for value in (part.value, load(part.buffer, list(part.indices)))]
    if not all(vectorizable(value, column.var) for value in outputs):
        return None
    data, weights = combine.term.a, combine.term.b
    if not isinstance(data, tvm.ir.TensorLoad):
        return None
    blocks, panels, _depth, width = (as_int(extent) for extent in weights.source.shape)
    assert blocks is not None
    assert panels is not None
    assert width is not None
    analyzer = tvm.sym.Analyzer()
    first = {column.var: const(0), channel.var: const(0)}
    at = anchored.flat.offset(data.source, [substitute(index, first) for index in data.indices], analyzer)
    steps = tuple(stride(at, axis.var) for axis in window)
    place = analyzer.simplify(substitute(at, {axis.var: const(0) for axis in window}))
    views = anchored.flat.views
    channels = as_int(channel.extent) or 1
    return Direct(
        tuple(rows),
        column,
        tuple(window),
        steps,
        views[data.source],
        place,
        views[weights.source],
        blocks,
        panels,
        channels,
        width,
        anchored,
    )


def emit_direct(direct: Direct, machine: Machine) -> Stmt:
    """The kernel."""
    extents = [axis.extent for axis in direct.rows]

    def named(known: list[Expr], steps: list[Expr]) -> Stmt:
        if len(known) < len(extents):
            return bind_opaque("extent", extents[len(known)], lambda extent: named([*known, extent], steps))
        if len(steps) < len(direct.steps):
            return bind_opaque("step", direct.steps[len(steps)], lambda step: named(known, [*steps, step]))
        return bind_opaque("m", product(known), lambda m: _Kernel(direct, machine, known, steps, m).emit())

    return seq(*direct.anchored.flat.prelude, named([], []))


@dataclass(frozen=True)
class _Kernel:
    direct: Direct
    machine: Machine
    extents: list[Expr]
    steps: list[Expr]
    m: Expr

    @property
    def vectors(self) -> int:
        return self.direct.width // self.machine.lanes(32)

    @property
    def height(self) -> int:
        """Places of a register tile: enough sums to hide the latency of a product, few enough addresses for the registers."""
        return min(rows_for(self.machine, self.vectors), 8)

    @property
    def places(self) -> int:
        """Places of a task: more where the weights do not stay in the cache between two tasks."""
        heavy = 4 * self.direct.depth * self.direct.width * self.total > self.machine.l2 // 2
        return self.height * (8 if heavy else 2)

    @property
    def total(self) -> int:
        """Panels of all blocks."""
        return self.direct.blocks * self.direct.panels

    @property
    def share(self) -> int:
        """Panels of a task: whole blocks, so that their results stay in the cache."""
        blocks = max(256 // (self.direct.panels * self.direct.width), 1)
        return min(blocks, self.direct.blocks) * self.direct.panels

    def emit(self) -> Stmt:
        shares = -(-self.total // self.share)
        total = tirx.ceildiv(self.m, const(self.places)) * const(shares)
        work = self.m * const(2 * self.direct.depth * self.direct.width * self.total)

        def task(t: Expr) -> Stmt:
            return self._task(t // const(shares) * const(self.places), t % const(shares) * const(self.share))

        open_ = [axis for axis in self.direct.rows if as_int(axis.extent) is None]
        if len(open_) > 1:
            return parallel(total, task)
        return when(tvm.sym.Analyzer().simplify(work >= const(PARALLEL_FLOPS)), parallel(total, task), serial(total, task))

    def _task(self, first: Expr, panel: Expr) -> Stmt:
        places, share, width = self.places, self.share, self.direct.width
        bases, made = allocate([places], "int64", "bases")
        sums, more = allocate([places * share * width], "float32", "sums", "global")
        count = tirx.min(const(places), self.m - first)
        panels = const(share) if self.total % share == 0 else tirx.min(const(share), const(self.total) - panel)

        def base(r: Expr) -> Stmt:
            return self._at(tirx.min(first + r, self.m - const(1)), lambda at: store(bases, substitute(self.direct.place, at), r))

        def tiles(p: Expr) -> Stmt:
            height = const(self.height)
            return serial(tirx.ceildiv(count, height), lambda t: self._tile(bases, sums, t * height, panel + p, p), "tile")

        return seq(made, more, serial(places, base), serial(panels, tiles, "panel"), self._finish(sums, first, count, panel, panels))

    def _at(self, row: Expr, body: Callable[[Table], Stmt]) -> Stmt:
        return bind_all([axis.var for axis in self.direct.rows], unfuse(row, self.extents), body)

    def _tile(self, bases: Any, sums: Any, row: Expr, panel: Expr, p: Expr) -> Stmt:
        """`height` places by one panel, over the whole window."""
        height, width, lanes = self.height, self.direct.width, self.machine.lanes(32)
        acc, allocation = allocate([height, width], "float32", "acc")
        places = [tirx.Var(f"a{i}", "int64") for i in range(height)]
        channel = panel // const(self.direct.panels) * const(self.direct.channels)
        binds = [tirx.Bind(var, load(bases, [row + const(i)]) + channel) for i, var in enumerate(places)]

        def each(body: Callable[[int, Expr], Stmt]) -> Stmt:
            return seq(*(across(width, lanes, lambda lane, i=i: body(i, lane)) for i in range(height)))  # type: ignore[misc]

        def step(position: Expr, moved: Expr, c: Expr) -> Stmt:
            weight = (panel * const(self.direct.depth) + position * const(self.direct.channels) + c) * const(width)

            def term(i: int, lane: Expr) -> Expr:
                return load(self.direct.source, [places[i] + moved + c]) * load(self.direct.weights, [weight + lane])

            return each(lambda i, lane: store(acc, load(acc, [const(i), lane]) + term(i, lane), const(i), lane))

        def keep(i: int, lane: Expr) -> Stmt:
            place = ((row + const(i)) * const(self.share) + p) * const(width)
            return store(sums, load(acc, [const(i), lane]), place + lane)

        clear = each(lambda i, lane: store(acc, tirx.const(0, "float32"), const(i), lane))
        return seq(allocation, *binds, clear, self._window(step), each(keep))

    def _window(self, step: Callable[[Expr, Expr, Expr], Stmt]) -> Stmt:
        """step(position in the window, how far that is from its first element, channel of the block), for all of them."""
        direct = self.direct

        def along(index: int, position: Expr, moved: Expr) -> Stmt:
            if index == len(direct.window):
                channel = lambda c: step(position, moved, c)  # noqa: E731
                return unrolled(direct.channels, channel) if direct.channels <= UNROLL else serial(direct.channels, channel, "c")
            axis = direct.window[index]
            # A count that LLVM cannot see keeps it from unrolling the window, which takes it seconds.
            extent = const(1) if as_int(axis.extent) == 1 else tirx.min(axis.extent, self.m * const(1 << 20))
            return serial(extent, lambda k: along(index + 1, position * axis.extent + k, moved + k * self.steps[index]), axis.var.name)

        return along(0, const(0), const(0))

    def _finish(self, sums: Any, first: Expr, count: Expr, panel: Expr, panels: Expr) -> Stmt:
        """What was fused behind the convolution, place by place."""
        direct = self.direct

        def block(at: Table, row: Expr, b: Expr) -> Stmt:
            start = (row * const(self.share) + b * const(direct.panels)) * const(direct.width)
            column = (panel // const(direct.panels) + b) * const(direct.columns)

            def point(j: Expr) -> Stmt:
                return self._write(load(sums, [start + j]), {**at, direct.column.var: column + j})

            return strips(const(direct.columns), self.machine.lanes(32), point)

        blocks = panels // const(direct.panels) if direct.panels > 1 else panels
        return serial(count, lambda r: self._at(first + r, lambda at: serial(blocks, lambda b: block(at, r, b), "block")), "row")

    def _write(self, total: Expr, at: Table) -> Stmt:
        def visit(node: Expr) -> Expr | None:
            if isinstance(node, tvm.ir.TensorLoad) and node.source.same_as(self.direct.anchored.total):
                return total
            return at.get(node) if isinstance(node, tvm.ir.Var) else None

        parts = self.direct.anchored.parts
        return seq(*(store(part.buffer, rewrite(part.value, visit), substitute(part.indices[0], at)) for part in parts))
