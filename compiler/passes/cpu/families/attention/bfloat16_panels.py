"""Keys and values of a head as `paired` multiplies by them: rounded, and laid out in pairs.

Keys are turned over in registers, a square of as many keys as a vector has lanes at a time, whose
elements are pairs: written one by one they took as long as a dozen queries.
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
class PairHead:
    """A head of a task, at `at`.

    padded: its keys with those that fill the last panel; keys: [panel, pair of the depth, lane];
    values: [pair of keys, column].
    """

    attention: Attention
    unit: VectorUnit
    at: Table
    padded: Expr
    keys: Any
    values: Any

    @classmethod
    def of(cls, attention: Attention, unit: VectorUnit, at: Table, padded: Expr) -> "PairHead":
        """Emit room for the keys and values."""
        columns = columns_of(attention, unit)
        keys = alloc([padded * (attention.head_depth // 2)], PAIR_DTYPE, "keys", "global")
        values = alloc([padded * (columns // 2)], PAIR_DTYPE, "values", "global")
        return cls(attention, unit, at, padded, keys, values)

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


def store_row(head: PairHead, target: Any, begin: Expr, value: Expr, place: Table) -> None:
    """target[begin + d] = the number of a query or a key, rounded."""
    depth, unit = head.attention.depth, head.unit
    for start, width in blocks(head.attention.head_depth, unit.lanes(32), "d"):

        def here(lane: Expr, start: Expr = start) -> Expr:
            return substitute(value, {**place, depth.var: start + lane})

        store_bfloat16(target, begin + start, width, unit, here)


def pack_keys(head: PairHead) -> None:
    """keys[panel, pair, lane]: the keys of the head; the last key again where the last panel is not
    full, so that no lane reads past the keys.
    """
    attention, unit, panel = head.attention, head.unit, panel_of(head.unit)
    lanes, n = unit.lanes(32), attention.column.extent
    # What fills a row up is in squares, but not stored.
    room = 2 * -(-head.pairs // lanes) * lanes
    with serial(tirx.ceildiv(n, panel), "panel") as p, serial(panel // lanes, "part") as part:
        rows = alloc([lanes * room], storage_dtype(unit), "rows")
        with serial(lanes, "line") as line:
            index = tirx.min(p * panel + part * lanes + line, n - 1)
            place = {**head.at, attention.column.var: let("column", index)}
            store_row(head, rows, line * room, attention.real_key, place)
        begin = let("begin", p * head.pairs * panel + part * lanes)
        full, rest = divmod(head.pairs, lanes)
        with serial(full, "square") as square:
            _turn_square(head, rows, square * lanes, lanes, begin)
        if rest:
            _turn_square(head, rows, const(full * lanes), rest, begin)


def _turn_square(head: PairHead, rows: Any, first: Expr, count: int, begin: Expr) -> None:
    """Write `count` pairs of as many keys as a vector has lanes, from the pair `first` on, into
    their part of the panel that begins at `begin`.
    """
    lanes, panel = head.unit.lanes(32), panel_of(head.unit)
    room = int(rows.shape[0]) // lanes

    def part_of(line: int, start: int, some: int) -> Expr:
        place = const(line * room) + (first + start) * 2
        part = load(rows, [prim.Ramp(place, const(1), 2 * some)])
        return tirx.reinterpret(f"{PAIR_DTYPE}x{some}", part)

    for i, row in enumerate(transpose_square(PAIR_DTYPE, lanes, part_of)[:count]):
        place = begin + (first + i) * panel
        emit(tirx.BufferStore(head.keys, row, [prim.Ramp(place, const(1), lanes)]))


def pack_values(head: PairHead) -> None:
    """values[pair, column]: of two neighbouring keys, the earlier one in the lower half; zeros in
    place of a key past the last one, as its weight is zero and the last key's might be infinite.
    """
    n = head.attention.column.extent
    with serial(tirx.truncdiv(n, const(2)), "pair") as pair:
        _pack_pair(head, pair, whole_pair=True)
    with when(tirx.truncmod(n, const(2)) != 0):
        _pack_pair(head, tirx.truncdiv(n, const(2)), whole_pair=False)


def _pack_pair(head: PairHead, pair: Expr, whole_pair: bool) -> None:
    attention, unit = head.attention, head.unit
    width, column = attention.width.var, attention.column.var
    for start, lanes in blocks(attention.head_width, unit.lanes(32), "column"):
        halves = [alloc([lanes], storage_dtype(unit), name) for name in ("lower", "upper")]
        for half in range(2 if whole_pair else 1):

            def value(lane: Expr, start: Expr = start, half: int = half) -> Expr:
                place = {**head.at, column: pair * 2 + half, width: start + lane}
                return substitute(attention.real_value, place)

            store_bfloat16(halves[half], const(0), lanes, unit, value)
        with vectorize(lanes) as lane:
            lower, upper = (load(half, [lane]).astype(PAIR_DTYPE) for half in halves)
            both = lower | upper << tirx.const(16, PAIR_DTYPE) if whole_pair else lower
            store(head.values, both, pair * head.columns + start + lane)
