"""The keys of a head in panels, as `emit` multiplies by them.

Each key is read in order, and its elements are written a panel apart. Squares of as many keys as a
vector has lanes are turned over in registers: written one by one, or by scattering stores, they
took as long as a dozen queries.
"""

from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.rows import is_ragged, pieces
from compiler.passes.cpu.shared.lanes import vector_index
from compiler.passes.cpu.shared.square import transpose_square
from compiler.passes.cpu.shared.vectorizable import is_vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, emit, let, serial, store, vectorize
from compiler.tir.exprs import Expr, Table, const, load, substitute


def panel_of(unit: VectorUnit) -> int:
    """Keys of a panel: two vectors."""
    return 2 * unit.lanes(32)


def pack_keys(attention: Attention, unit: VectorUnit, at: Table, keys: Any) -> None:
    """keys[panel, depth, lane]: the keys of the head `at`; the last key again where the last panel
    is not full, so that no lane reads past the keys.
    """
    panel, lanes, depth = panel_of(unit), unit.lanes(32), attention.head_depth
    in_squares = depth % lanes == 0 or is_ragged(depth)
    in_squares &= is_vectorizable(attention.real_key, attention.depth.var)
    size = lanes if in_squares and lanes > 1 else 1
    with serial(tirx.ceildiv(attention.column.extent, panel), "panel") as p:
        with serial(panel // size, "part") as part:
            first = let("key0", p * panel + part * size)
            rows = [tirx.min(first + i, attention.column.extent - 1) for i in range(size)]
            places = [{**at, attention.column.var: row} for row in rows]
            with serial(depth // size, "k") as strip:
                begin = let("begin", (p * depth + strip * size) * panel + part * size)
                if size > 1:
                    _turn_square(attention, places, strip * size, size, (keys, begin, panel))
                else:
                    key = {**places[0], attention.depth.var: strip}
                    store(keys, substitute(attention.real_key, key), begin)
            if rest := depth % size:
                begin = let("begin", (p * depth + (depth - rest)) * panel + part * size)
                _turn_square(attention, places, const(depth - rest), rest, (keys, begin, panel))


def _turn_square(
    attention: Attention, places: list[Table], k: Expr, size: int, to: tuple[Any, Expr, int]
) -> None:
    """Write `size` elements from `k` on, as many as there are keys or fewer: of each key a column
    of a panel.

    to: (panels, where the square begins in them, elements from one of its rows to the next).
    """
    (keys, begin, panel), lanes = to, len(places)

    def part_of(line: int, first: int, count: int) -> Expr:
        part = alloc([count], "float32", f"key{line}")
        here = min(max(size - first, 0), count)
        if here < count:
            with vectorize(count) as lane:
                store(part, 0, lane)
        for start, width in pieces(here, count):
            with vectorize(width) as lane:
                at = {**places[line], attention.depth.var: k + (first + start) + lane}
                store(part, substitute(attention.real_key, at), const(start) + lane)
        return load(part, [vector_index(count)])

    for i, row in enumerate(transpose_square("float32", lanes, part_of)[:size]):
        emit(tirx.BufferStore(keys, row, [prim.Ramp(begin + i * panel, const(1), lanes)]))
