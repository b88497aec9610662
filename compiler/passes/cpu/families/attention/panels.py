"""Packing of a head's keys into panels, for `emit`.

Each key is read in order, and its elements are written a panel apart. Squares of as many keys as a
vector has lanes are transposed in registers: storing elements one by one, or by scattering stores,
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


def pack_keys(attention: Attention, unit: VectorUnit, position: Table, keys: Any) -> None:
    """Emit keys[panel, depth, lane] of the head at a position; the last key is repeated where the
    last panel is not full, so that no lane reads past the keys.
    """
    panel, lanes, depth = panel_of(unit), unit.lanes(32), attention.head_depth
    in_squares = depth % lanes == 0 or is_ragged(depth)
    in_squares &= is_vectorizable(attention.scaled_key, attention.depth.var)
    size = lanes if in_squares and lanes > 1 else 1
    with serial(tirx.ceildiv(attention.column.extent, panel), "panel") as p:
        with serial(panel // size, "part") as part:
            first = let("key0", p * panel + part * size)
            rows = [tirx.min(first + i, attention.column.extent - 1) for i in range(size)]
            positions = [{**position, attention.column.var: row} for row in rows]
            with serial(depth // size, "k") as strip:
                begin = let("begin", (p * depth + strip * size) * panel + part * size)
                if size > 1:
                    _transpose_square(
                        attention, positions, strip * size, size, (keys, begin, panel)
                    )
                else:
                    key = {**positions[0], attention.depth.var: strip}
                    store(keys, substitute(attention.scaled_key, key), begin)
            if rest := depth % size:
                begin = let("begin", (p * depth + (depth - rest)) * panel + part * size)
                _transpose_square(
                    attention, positions, const(depth - rest), rest, (keys, begin, panel)
                )


def _transpose_square(
    attention: Attention, positions: list[Table], k: Expr, size: int, to: tuple[Any, Expr, int]
) -> None:
    """Emit a column of a panel for each key: `size` elements from `k` on, at most as many as there
    are keys.

    to: (panels, where the square begins in them, elements from one of its rows to the next).
    """
    (keys, begin, panel), lanes = to, len(positions)

    def part_of(line: int, first: int, count: int) -> Expr:
        part = alloc([count], "float32", f"key{line}")
        available = min(max(size - first, 0), count)
        if available < count:
            with vectorize(count) as lane:
                store(part, 0, lane)
        for start, width in pieces(available, count):
            with vectorize(width) as lane:
                element = {**positions[line], attention.depth.var: k + (first + start) + lane}
                store(part, substitute(attention.scaled_key, element), const(start) + lane)
        return load(part, [vector_index(count)])

    for i, row in enumerate(transpose_square("float32", lanes, part_of)[:size]):
        emit(tirx.BufferStore(keys, row, [prim.Ramp(begin + i * panel, const(1), lanes)]))
