"""The kernel for SMLAD, which adds two products of 16 bits to a general register: ARM's processors
without vectors.

A tile is some rows by one column, so that the two words of four widened weights serve all rows,
and its accumulators, one operand of each side and two addresses fit into 14 registers. Rows are
gathered as words of two halves, those of a group side by side for all rows of the tile. The
epilogue follows while the accumulators are in registers; what it reads of a column is read once.
The last tile begins early enough to be a whole one. Fewer rows than a tile are computed one by
one, by a panel of columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.int8 import plan
from compiler.passes.cpu.families.int8.layout import DUAL_WORDS, Layout
from compiler.passes.cpu.families.int8.rows import pack_group
from compiler.passes.cpu.shared.integer_epilogue import IntegerEpilogue
from compiler.tir.arm_words import widen_word
from compiler.tir.building import alloc, let, otherwise, serial, steps, store, when
from compiler.tir.exprs import Expr, Table, as_int, dtype_of, load, substitute


@dataclass(frozen=True)
class _Tile:
    """Some rows of the left side: groups holds their words, [groups, rows, 2]; positions: where
    their results are.
    """

    layout: Layout
    rows: int
    groups: Any
    positions: list[Table]
    epilogue: IntegerEpilogue


def emit_dual(layout: Layout, m: Expr, fills_tile: Expr | bool) -> None:
    """Emit all rows; fills_tile: the condition that there are as many as a tile has."""
    rows = plan.dual_rows(layout.length)
    most = 1 if as_int(fills_tile) == 0 else rows
    groups = alloc([layout.length * most * DUAL_WORDS], "int32", "left", "global")
    with when(fills_tile), serial(tirx.ceildiv(m, rows), "tile") as t:
        # Rows that two tiles share are computed twice.
        first = let("first", tirx.min(t * rows, m - rows))
        tile = _gather(layout, groups, first, rows)
        for column in _columns(layout):
            _emit_column(tile, column)
    with otherwise(), serial(m, "row") as row:
        tile = _gather(layout, groups, row, 1)
        with serial(layout.panels, "panel") as panel:
            for count in _panel_sizes(layout, panel):
                _emit_panel(tile, panel, count)


def _columns(layout: Layout) -> Iterator[tuple[Expr, Expr]]:
    """Each column, and where its weights begin."""
    with serial(layout.columns, "column") as column:
        panel, lane = tirx.truncdiv(column, layout.width), tirx.truncmod(column, layout.width)
        yield column, let("begin", _weights_begin(layout, panel) + lane * layout.group)


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
            to = let("to", (position * (layout.part * rows) + r) * DUAL_WORDS)
            with serial(full, "group") as k:
                _pack_words(layout, groups, source + k * layout.group, to + k * (rows * DUAL_WORDS))
            if full < layout.part:
                rest = source + full * layout.group
                pack_group(layout, groups, rest, to + full * (rows * DUAL_WORDS), layout.depth % 4)
    positions = [conv.epilogue.rows_at(conv.rows, first + i) for i in range(rows)]
    epilogue = IntegerEpilogue.of(conv.epilogue, conv.column.var)
    return _Tile(layout, rows, groups, positions, epilogue)


def _pack_words(layout: Layout, groups: Any, source: Expr, to: Expr) -> None:
    """Emit four neighbouring elements as two words."""
    dtype = dtype_of(layout.conv.source)
    if dtype not in ("int8", "uint8"):
        pack_group(layout, groups, source, to, layout.group)
        return
    words = widen_word(layout.conv.source, source, layout.conv.zero or 0)
    for number, widened in enumerate(words):
        store(groups, widened, to + number)


def _load_left(tile: _Tile, k: Expr, row: int) -> list[Expr]:
    start = (k * tile.rows + row) * DUAL_WORDS
    return [load(tile.groups, [start + number]) for number in range(DUAL_WORDS)]


def _multiply_add(
    layout: Layout, acc: Any, index: int, left: list[Expr], right: tuple[Expr, Expr]
) -> None:
    total = load(acc, [index])
    for lhs, rhs in zip(left, right, strict=True):
        name = layout.instruction.intrinsic
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


def _emit_column(tile: _Tile, column: tuple[Expr, Expr]) -> None:
    """Emit the results of one column."""
    (number, begin), layout = column, tile.layout
    positions = [{**position, layout.conv.column.var: number} for position in tile.positions]
    acc = _begin(tile, positions)
    for k in steps(layout.length, plan.DUAL_UNROLL):
        right = widen_word(layout.conv.weights, begin + k * (layout.width * layout.group))
        for row in range(tile.rows):
            _multiply_add(layout, acc, row, _load_left(tile, k, row), right)
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
            _multiply_add(layout, acc, column, left, widen_word(layout.conv.weights, begin))
    _store_results(tile, acc, positions)
