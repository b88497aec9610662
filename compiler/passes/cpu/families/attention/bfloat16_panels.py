"""Packing of a head's keys and values to bfloat16 in pairs, for `bfloat16_emit`.

Keys are transposed in registers, a square of as many keys as a vector has lanes at a time, whose
elements are pairs: storing elements one by one took as long as a dozen queries.
"""

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.panels import panel_of
from compiler.passes.cpu.shared.bfloats import PAIR_DTYPE, storage_dtype, store_bfloat16
from compiler.passes.cpu.shared.square import transpose_square
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, blocks, emit, let, serial, store, vectorize, when
from compiler.tir.exprs import Expr, Table, const, load, substitute


@dataclass(frozen=True)
class Bfloat16Head:
    """A head of a task, at `position`.

    padded: the number of its keys, rounded up to whole panels; keys: [panel, pair of the depth,
    lane]; values: [pair of keys, column].
    """

    attention: Attention
    unit: VectorUnit
    position: Table
    padded: Expr
    keys: Any
    values: Any

    @classmethod
    def of(
        cls, attention: Attention, unit: VectorUnit, position: Table, padded: Expr
    ) -> "Bfloat16Head":
        """Emit the allocation of the packed keys and values."""
        columns = columns_of(attention, unit)
        keys = alloc([padded * (attention.head_depth // 2)], PAIR_DTYPE, "keys", "global")
        values = alloc([padded * (columns // 2)], PAIR_DTYPE, "values", "global")
        return cls(attention, unit, position, padded, keys, values)

    @property
    def pairs(self) -> int:
        """Pairs of a query or a key."""
        return self.attention.head_depth // 2

    @property
    def columns(self) -> int:
        """Columns of the results, in whole vectors."""
        return columns_of(self.attention, self.unit)


def columns_of(attention: Attention, unit: VectorUnit) -> int:
    """Columns of the results, in whole vectors."""
    lanes = unit.lanes(32)
    return -(-attention.head_width // lanes) * lanes


def store_row(head: Bfloat16Head, target: Any, begin: Expr, value: Expr, position: Table) -> None:
    """Emit target[begin + d] = element d of a query or a key, rounded to bfloat16."""
    depth, unit = head.attention.depth, head.unit
    for start, width in blocks(head.attention.head_depth, unit.lanes(32), "d"):

        def element(lane: Expr, start: Expr = start) -> Expr:
            return substitute(value, {**position, depth.var: start + lane})

        store_bfloat16(target, begin + start, width, unit, element)


def pack_keys(head: Bfloat16Head) -> None:
    """Emit keys[panel, pair, lane] of the head; the last key is repeated where the last panel is
    not full, so that no lane reads past the keys.
    """
    attention, unit, panel = head.attention, head.unit, panel_of(head.unit)
    lanes, n = unit.lanes(32), attention.column.extent
    # The padding of a row is in squares, but not stored.
    room = 2 * -(-head.pairs // lanes) * lanes
    with serial(tirx.ceildiv(n, panel), "panel") as p, serial(panel // lanes, "part") as part:
        rows = alloc([lanes * room], storage_dtype(unit), "rows")
        with serial(lanes, "line") as line:
            index = tirx.min(p * panel + part * lanes + line, n - 1)
            position = {**head.position, attention.column.var: let("column", index)}
            store_row(head, rows, line * room, attention.scaled_key, position)
        begin = let("begin", p * head.pairs * panel + part * lanes)
        full, rest = divmod(head.pairs, lanes)
        with serial(full, "square") as square:
            _transpose_square(head, rows, square * lanes, lanes, begin)
        if rest:
            _transpose_square(head, rows, const(full * lanes), rest, begin)


def _transpose_square(head: Bfloat16Head, rows: Any, first: Expr, count: int, begin: Expr) -> None:
    """Emit the stores of `count` pairs, from `first` on, of as many keys as a vector has lanes to
    the panel from `begin` on.
    """
    lanes, panel = head.unit.lanes(32), panel_of(head.unit)
    room = int(rows.shape[0]) // lanes

    def part_of(line: int, start: int, pairs: int) -> Expr:
        index = const(line * room) + (first + start) * 2
        part = load(rows, [prim.Ramp(index, const(1), 2 * pairs)])
        return tirx.reinterpret(f"{PAIR_DTYPE}x{pairs}", part)

    for i, row in enumerate(transpose_square(PAIR_DTYPE, lanes, part_of)[:count]):
        index = begin + (first + i) * panel
        emit(tirx.BufferStore(head.keys, row, [prim.Ramp(index, const(1), lanes)]))


def pack_values(head: Bfloat16Head) -> None:
    """Emit values[pair, column] of two neighbouring keys, the earlier one in the lower half. The
    key after the last one is zeros: its weight is 0, which times an infinite value would be NaN.
    """
    n = head.attention.column.extent
    with serial(tirx.truncdiv(n, const(2)), "pair") as pair:
        _pack_pair(head, pair, whole_pair=True)
    with when(tirx.truncmod(n, const(2)) != 0):
        _pack_pair(head, tirx.truncdiv(n, const(2)), whole_pair=False)


def _pack_pair(head: Bfloat16Head, pair: Expr, whole_pair: bool) -> None:
    attention, unit = head.attention, head.unit
    width, column = attention.width.var, attention.column.var
    for start, lanes in blocks(attention.head_width, unit.lanes(32), "column"):
        sides = [alloc([lanes], storage_dtype(unit), name) for name in ("lower", "upper")]
        for side in range(2 if whole_pair else 1):

            def value(lane: Expr, start: Expr = start, side: int = side) -> Expr:
                position = {**head.position, column: pair * 2 + side, width: start + lane}
                return substitute(attention.scaled_value, position)

            store_bfloat16(sides[side], const(0), lanes, unit, value)
        with vectorize(lanes) as lane:
            lower, upper = (load(side, [lane]).astype(PAIR_DTYPE) for side in sides)
            packed = lower | upper << tirx.const(16, PAIR_DTYPE) if whole_pair else lower
            store(head.values, packed, pair * head.columns + start + lane)
