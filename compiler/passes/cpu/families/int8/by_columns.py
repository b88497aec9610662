"""The kernel of processors without vectors, whose accumulators are general registers: of SMLAD,
which adds two products of 16 bits to one, and of a multiplication and an addition.

A tile is some rows by one column or a few. With SMLAD it is one column, so that the two words of
four widened weights serve all rows, and its accumulators, one operand of each side and two
addresses fit into 14 registers. Rows are gathered as integers of 16 bits, those of a group side by
side for all rows of the tile, for SMLAD as words of two halves. The epilogue follows while the
accumulators are in registers; what it reads of a column is read once. The last tile begins early
enough to be a whole one. Fewer rows than a tile are computed one by one, by a panel of columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.int8 import plan
from compiler.passes.cpu.families.int8.layout import Layout
from compiler.passes.cpu.families.int8.rows import load_left, pack_group
from compiler.passes.cpu.shared.integer_epilogue import IntegerEpilogue
from compiler.tir.arm_words import widen_word
from compiler.tir.building import alloc, let, otherwise, serial, steps, store, when
from compiler.tir.exprs import Expr, Table, as_int, dtype_of, load, substitute


@dataclass(frozen=True)
class _Tile:
    """Some rows of the left side: groups holds their words, [groups, rows, words]; positions: where
    their results are.
    """

    layout: Layout
    rows: int
    groups: Any
    positions: list[Table]
    epilogue: IntegerEpilogue


def emit_by_columns(layout: Layout, m: Expr, fills_tile: Expr | bool) -> None:
    """Emit all rows; fills_tile: the condition that there are as many as a tile has."""
    rows = plan.rows_by_columns(layout.group, layout.length)
    most = 1 if as_int(fills_tile) == 0 else rows
    groups = alloc([layout.length * most * layout.words], layout.word, "left", "global")
    with when(fills_tile), serial(tirx.ceildiv(m, rows), "tile") as t:
        # Rows that two tiles share are computed twice.
        first = let("first", tirx.min(t * rows, m - rows))
        tile = _gather(layout, groups, first, rows)
        for columns, begin in _columns(layout):
            _emit_columns(tile, columns, begin)
    with otherwise(), serial(m, "row") as row:
        tile = _gather(layout, groups, row, 1)
        with serial(layout.panels, "panel") as panel:
            for count in _panel_sizes(layout, panel):
                _emit_panel(tile, panel, count)


def _columns(layout: Layout) -> Iterator[tuple[list[Expr], Expr]]:
    """The columns of each tile, neighbours in a panel, and where the weights of the first begin."""
    count = plan.columns_by_columns(layout.group)
    full, rest = divmod(layout.columns, count)
    for tiles, first, each in ((full, 0, count), (rest, full * count, 1)):
        if not tiles:
            continue
        with serial(tiles, "column") as tile:
            column = first + tile * each
            panel, lane = tirx.truncdiv(column, layout.width), tirx.truncmod(column, layout.width)
            begin = let("begin", _weights_begin(layout, panel) + lane * layout.group)
            yield [column + i for i in range(each)], begin


def _panel_sizes(layout: Layout, panel: Expr) -> Iterator[int]:
    """The columns of a panel: all, or fewer in the last one."""
    full, rest = divmod(layout.columns, layout.width)
    with when(panel < full):
        yield layout.width
    if rest:
        with otherwise():
            yield rest


def _weights_begin(layout: Layout, panel: Expr) -> Expr:
    return panel * (layout.stored * layout.width * layout.group)


def _gather(layout: Layout, groups: Any, first: Expr, rows: int) -> _Tile:
    """Emit the words of some rows, each with its whole window."""
    conv, full = layout.conv, layout.depth // layout.group
    with serial(rows, "row") as r:
        begin = substitute(conv.origin, conv.emit_position(first + r))
        for position, offset in conv.over_window():
            source = let("source", begin + offset)
            to = let("to", (position * (layout.part * rows) + r) * layout.words)
            with serial(full, "group") as k:
                _pack_words(
                    layout, groups, source + k * layout.group, to + k * (rows * layout.words)
                )
            if full < layout.part:
                rest, last = source + full * layout.group, to + full * (rows * layout.words)
                pack_group(layout, groups, rest, last, layout.depth % layout.group)
    positions = [conv.epilogue.rows_at(conv.rows, first + i) for i in range(rows)]
    epilogue = IntegerEpilogue.of(conv.epilogue, conv.column.var)
    return _Tile(layout, rows, groups, positions, epilogue)


def _pack_words(layout: Layout, groups: Any, source: Expr, to: Expr) -> None:
    """Emit the neighbouring elements of a group as words."""
    if layout.group == 1:
        store(groups, load_left(layout, source).astype(layout.word), to)
        return
    dtype = dtype_of(layout.conv.source)
    if dtype not in ("int8", "uint8"):
        pack_group(layout, groups, source, to, layout.group)
        return
    words = widen_word(layout.conv.source, source, layout.conv.zero or 0)
    for number, widened in enumerate(words):
        store(groups, widened, to + number)


def _load_left(tile: _Tile, k: Expr, row: int) -> list[Expr]:
    words = tile.layout.words
    start = (k * tile.rows + row) * words
    return [load(tile.groups, [start + number]).astype("int32") for number in range(words)]


def _load_right(layout: Layout, begin: Expr) -> tuple[Expr, ...]:
    """The weights of a group, as words that are multiplied by those of the left side."""
    if layout.group == 1:
        return (load(layout.conv.weights, [begin]).astype("int32"),)
    return widen_word(layout.conv.weights, begin)


def _multiply_add(
    layout: Layout, acc: Any, index: int, left: list[Expr], right: tuple[Expr, ...]
) -> None:
    total, name = load(acc, [index]), layout.instruction.intrinsic
    for lhs, rhs in zip(left, right, strict=True):
        if name is None:
            total = total + lhs * rhs
        else:
            total = tirx.call_llvm_pure_intrin("int32", name, lhs, rhs, total)
    store(acc, total, index)


def _begin(tile: _Tile, positions: list[Table]) -> Any:
    """Emit accumulators of the results at these positions."""
    acc = alloc([len(positions)], "int32", "acc")
    for index, position in enumerate(positions):
        store(acc, tile.epilogue.begin(position), index)
    return acc


def _store_results(tile: _Tile, acc: Any, positions: list[Table]) -> None:
    for index, position in enumerate(positions):
        tile.epilogue.store(load(acc, [index]), position)


def _emit_columns(tile: _Tile, columns: list[Expr], begin: Expr) -> None:
    """Emit the results of some columns, whose weights begin side by side."""
    layout, var = tile.layout, tile.layout.conv.column.var
    positions = [{**position, var: number} for number in columns for position in tile.positions]
    acc = _begin(tile, positions)
    for k in steps(layout.length, plan.UNROLL_BY_COLUMNS[layout.group]):
        first = begin + k * (layout.width * layout.group)
        for column in range(len(columns)):
            right = _load_right(layout, first + column * layout.group)
            for row in range(tile.rows):
                index = column * tile.rows + row
                _multiply_add(layout, acc, index, _load_left(tile, k, row), right)
    _store_results(tile, acc, positions)


def _emit_panel(tile: _Tile, panel: Expr, columns: int) -> None:
    """Emit the results of one row in some columns of a panel."""
    layout, first = tile.layout, panel * tile.layout.width
    (position,), var = tile.positions, tile.layout.conv.column.var
    positions = [{**position, var: first + column} for column in range(columns)]
    acc = _begin(tile, positions)
    for k in steps(layout.length, 1):
        left = _load_left(tile, k, 0)
        for column in range(columns):
            begin = _weights_begin(layout, panel) + (k * layout.width + column) * layout.group
            _multiply_add(layout, acc, column, left, _load_right(layout, begin))
    _store_results(tile, acc, positions)
