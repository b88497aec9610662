"""The keys of a head in panels, as `emit` multiplies by them.

Each key is read in order, and its elements are written a panel apart. Squares of as many keys as a
vector has lanes are turned over in registers: written one by one, or by scattering stores, they
took as long as a dozen queries.
"""

from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.shared.loop_nest import vectorizable
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, emit, let, serial, store, vectorized
from compiler.tir.exprs import Expr, Table, const, load, substitute


def panel_of(unit: VectorUnit) -> int:
    """Keys of a panel: two vectors."""
    return 2 * unit.lanes(32)


def pack_keys(attention: Attention, unit: VectorUnit, at: Table, keys: Any) -> None:
    """keys[panel, depth, lane]: the keys of the head `at`; the last key again where the last panel
    is not full, so that no lane reads past the keys.
    """
    panel, lanes, depth = panel_of(unit), unit.lanes(32), attention.head_depth
    in_squares = depth % lanes == 0 and vectorizable(attention.real_key, attention.depth.var)
    size = lanes if in_squares and lanes > 1 else 1
    with serial(tirx.ceildiv(attention.column.extent, panel), "panel") as p:
        with serial(panel // size, "part") as part:
            first = let("key0", p * panel + part * size)
            rows = [tirx.min(first + i, attention.column.extent - 1) for i in range(size)]
            places = [{**at, attention.column.var: row} for row in rows]
            with serial(depth // size, "k") as strip:
                begin = let("begin", (p * depth + strip * size) * panel + part * size)
                if size > 1:
                    _turn_square(attention, places, strip * size, (keys, begin, panel))
                else:
                    key = {**places[0], attention.depth.var: strip}
                    store(keys, substitute(attention.real_key, key), begin)


def _turn_square(
    attention: Attention, places: list[Table], k: Expr, to: tuple[Any, Expr, int]
) -> None:
    """Write elements from `k` on of as many keys: of each a column of a panel.

    to: (panels, where the square begins in them, elements from one of its rows to the next).
    """
    (keys, begin, panel), lanes = to, len(places)
    vectors = []
    for i, place in enumerate(places):
        row = alloc([lanes], "float32", f"row{i}")
        with vectorized(lanes) as lane:
            at = {**place, attention.depth.var: k + lane}
            store(row, substitute(attention.real_key, at), lane)
        vectors.append(_vector(row, lanes))
    for i, vector in enumerate(_transposed(vectors)):
        emit(tirx.BufferStore(keys, vector, [prim.Ramp(begin + i * panel, const(1), lanes)]))


def _transposed(vectors: list[Expr]) -> list[Expr]:
    """Row i of the result holds lane i of every vector: quarters of the square change places, then
    quarters of these, two vectors at a time.
    """
    lanes = len(vectors)
    size = lanes // 2
    while size:
        upper = [lane if lane & size == 0 else lanes + lane - size for lane in range(lanes)]
        lower = [lane + size if lane & size == 0 else lanes + lane for lane in range(lanes)]
        turned = list(vectors)
        for i in range(lanes):
            if i & size == 0:
                pair = [vectors[i], vectors[i + size]]
                turned[i] = _shuffled(pair, upper)
                turned[i + size] = _shuffled(pair, lower)
        vectors, size = turned, size // 2
    return vectors


def _shuffled(vectors: list[Expr], lanes: list[int]) -> Expr:
    """Some lanes of two vectors, computed once."""
    whole = alloc([len(lanes)], "float32", "turned")
    value = prim.Shuffle(vectors, [tirx.const(lane, "int32") for lane in lanes])
    emit(tirx.BufferStore(whole, value, [prim.Ramp(const(0), const(1), len(lanes))]))
    return _vector(whole, len(lanes))


def _vector(buffer: Any, lanes: int) -> Expr:
    return load(buffer, [prim.Ramp(const(0), const(1), lanes)])
