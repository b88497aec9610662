"""Depthwise convolutions of bytes in general registers, on processors without vectors: by
instructions that multiply halves of words, as ARM has them, or by multiplying single bytes.

Loop order: rows; along a row the columns at a border one by one, whose taps inside of the image
are known when the kernel is compiled, then blocks of columns; per block one channel at a time, or
the four of a word, those of the lower and upper halves of one word first; innermost the rows of the
window. A word of weights serves all columns of a block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.pooling import plan
from compiler.passes.cpu.families.pooling.match import Window
from compiler.passes.cpu.shared.integer_epilogue import IntegerEpilogue
from compiler.passes.cpu.shared.sharing import share_positions
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.arm_words import BYTES, multiply_half, widen_word
from compiler.tir.building import alloc, emit, nest, serial, statements, store, when
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    const,
    dtype_of,
    load,
    loads,
    require_int,
    substitute,
)
from compiler.tir.flat import stride
from compiler.tir.loops import Stmt


@dataclass(frozen=True)
class ByteWindow:
    """A window whose taps are bytes less `zero` by known bytes of weights; first, last: the columns
    whose taps are all inside; in_words: whether four channels are read as a word.
    """

    window: Window
    image: Any
    zero: int
    weights: Any
    epilogue: IntegerEpilogue
    first: int
    last: int
    in_words: bool

    @property
    def channels(self) -> int:
        """Channels that are computed at a time."""
        return BYTES if self.in_words else 1

    @property
    def passes(self) -> tuple[tuple[int, ...], ...]:
        """Which of those have their accumulators in registers together."""
        return ((0, 2), (1, 3)) if self.in_words else ((0,),)


@dataclass(frozen=True)
class _Block:
    """Columns from `position` on, each with its taps that are inside, and a channel group."""

    position: Table
    taps: tuple[tuple[int, ...], ...]
    channel: Expr


def read_bytes(window: Window, unit: VectorUnit) -> ByteWindow | None:
    """The window as one of bytes, None for others and other processors."""
    scalar = [dot for dot in unit.integer_dots if dot.scalar and dot.group in (1, BYTES)]
    if not scalar:
        return None
    in_words = scalar[0].group == BYTES
    first, last = as_int(window.first), as_int(window.last)
    read = _read_tap(window)
    if read is None or first is None or last is None or as_int(window.column.extent) is None:
        return None
    if not window.steps[1] or (in_words and require_int(window.channels.extent) % BYTES):
        return None
    epilogue = IntegerEpilogue.of(window.anchored.epilogue, window.channels.var)
    return ByteWindow(window, *read, epilogue, first, max(first, last), in_words)


def _read_tap(window: Window) -> tuple[Any, int, Any] | None:
    """(load of the image, its zero point, load of the weights) of a tap that is the product of
    their bytes, None for others.
    """
    term, image, analyzer = window.combine.term, window.image, tvm.sym.Analyzer()
    if image is None or not isinstance(term, prim.Mul) or window.combine.node is not prim.Add:
        return None
    others = [read for read in loads(term) if not read.source.same_as(image.source)]
    if len(others) != 1 or len(loads(term)) != len((image, *others)):
        return None
    (weights,) = others
    zero = as_int(analyzer.simplify(image.astype("int32") - term.a))
    is_weight = as_int(analyzer.simplify(weights.astype("int32") - term.b)) == 0
    in_order = as_int(stride(weights.indices[0], window.channels.var)) == 1
    if zero is None or not is_weight or not in_order:
        return None
    are_bytes = dtype_of(image) in ("int8", "uint8") and dtype_of(weights) == "int8"
    return (image, zero, weights) if are_bytes else None


def emit_bytes(matched: ByteWindow) -> Stmt:
    """The body of a function that runs the program."""
    window = matched.window
    with statements() as body:
        for stmt in window.anchored.flat.prelude:
            emit(stmt)
        for position, _part in share_positions(window.rows, const(1), False):
            for column, taps in _columns(matched):
                here = {**position, window.column.var: column}
                count = require_int(window.channels.extent) // matched.channels
                with serial(count, "channels") as group:
                    _emit_block(matched, _Block(here, taps, group * matched.channels))
    return body.stmt


def _columns(matched: ByteWindow) -> Iterator[tuple[Expr, tuple[tuple[int, ...], ...]]]:
    """(first column, taps of each column) of all blocks of a row, from left to right."""
    window, every = matched.window, tuple(range(require_int(matched.window.taps.extent)))
    extent = require_int(window.column.extent)
    for column in range(matched.first):
        yield const(column), (_inside(window, column, every),)
    many, rest = divmod(matched.last - matched.first, plan.BYTE_COLUMNS)
    with serial(many, "columns") as i:
        yield const(matched.first) + i * plan.BYTE_COLUMNS, (every,) * plan.BYTE_COLUMNS
    if rest:
        yield const(matched.last - rest), (every,) * rest
    for column in range(matched.last, extent):
        yield const(column), (_inside(window, column, every),)


def _inside(window: Window, column: int, taps: tuple[int, ...]) -> tuple[int, ...]:
    """The taps of a column that are inside of the image."""
    analyzer = tvm.sym.Analyzer()

    def holds(tap: int) -> bool:
        table = {window.column.var: const(column), window.taps.var: const(tap)}
        conditions = (substitute(each, table) for each in window.column_inside)
        return all(as_int(analyzer.simplify(each)) == 1 for each in conditions)

    return tuple(tap for tap in taps if holds(tap))


def _emit_block(matched: ByteWindow, block: _Block) -> None:
    """Emit the results of a block."""
    window = matched.window
    for lanes in matched.passes:
        results = [
            {**block.position, window.column.var: block.position[window.column.var] + i,
             window.channels.var: block.channel + lane}
            for i in range(len(block.taps))
            for lane in lanes
        ]  # fmt: skip
        acc = alloc([len(results)], "int32", "sums")
        for index, position in enumerate(results):
            store(acc, matched.epilogue.begin(position), index)
        for line in nest(window.outer, block.position):
            inside = [substitute(each, line) for each in window.row_inside]
            with when(tirx.all(*inside) if inside else True):
                _emit_line(matched, block, line, lanes, acc)
        for index, position in enumerate(results):
            matched.epilogue.store(load(acc, [index]), position)


def _emit_line(
    matched: ByteWindow, block: _Block, line: Table, lanes: tuple[int, ...], acc: Any
) -> None:
    """Emit a row of the window in all columns of a block, in the order of the image's columns."""
    window, step = matched.window, matched.window.steps[1]
    corner = {**line, window.taps.var: const(0), window.channels.var: block.channel}
    index, weight = (
        substitute(read.indices[0], corner) for read in (matched.image, matched.weights)
    )
    along, across = (
        require_int(stride(read.indices[0], window.taps.var))
        for read in (matched.image, matched.weights)
    )
    uses = sorted((i * step + tap, i, tap) for i, taps in enumerate(block.taps) for tap in taps)
    for column, i, tap in uses:
        left = _load(matched, matched.image, index + column * along, lanes[0], matched.zero)
        right = _load(matched, matched.weights, weight + tap * across, lanes[0])
        for high in range(len(lanes)):
            position = len(lanes) * i + high
            total = load(acc, [position])
            if matched.in_words:
                store(acc, multiply_half(total, left, right, bool(high)), position)
            else:
                store(acc, total + left * right, position)


def _load(matched: ByteWindow, read: Any, index: Expr, odd: int, zero: int = 0) -> Expr:
    """A byte less a zero point; of a word, two of its bytes as halves."""
    if matched.in_words:
        return widen_word(read.source, index, zero)[odd]
    value = load(read.source, [index]).astype("int32")
    return value - tirx.const(zero, "int32") if zero else value
