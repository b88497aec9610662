"""The left side of an integer matmul: rows of bytes, or of float32 that holds integers, written to
scratch memory as groups for one instruction.

Bytes are copied, their signs turned where the instruction takes others. Integers of 9 bits, which
an 8-bit integer less its zero point may take, fit into 8 once the least of their row is subtracted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.int8.layout import Layout
from compiler.passes.cpu.shared.lanes import shuffle
from compiler.tir.building import alloc, blocks, emit, serial, store, strips, vectorize
from compiler.tir.exprs import Expr, const, dtype_of, load, substitute


@dataclass(frozen=True)
class Rows:
    """A task's rows as groups of integers, and what was subtracted from each row, None where
    nothing is.
    """

    groups: Any
    shifts: Any

    def shift(self, layout: Layout, row: Expr) -> Expr | None:
        """What was subtracted from every element of a row, None where that is nothing."""
        if self.shifts is not None:
            return load(self.shifts, [row])
        moved = layout.moved if layout.summed else 0
        return tirx.const(-moved, "int32") if moved else None


def gather_rows(layout: Layout, rows: Rows, first: Expr, count: Expr) -> None:
    """Emit the rows from number `first` on, each with its whole window."""
    conv = layout.conv
    with serial(count, "row") as r:
        place = substitute(conv.origin, conv.emit_position(first + r))
        to = r * layout.length
        if rows.shifts is None:
            shift = None
        else:
            store(rows.shifts, _shift(layout, place), r)
            shift = load(rows.shifts, [r])
        # Neighbouring places share most of their windows, which are gathered anew all the same: one
        # run of groups for each row keeps the innermost loop free of addresses.
        for position, moved in conv.over_window():
            _pack(layout, rows.groups, place + moved, to + position * layout.part, shift)


def _shift(layout: Layout, place: Expr) -> Expr:
    """Emit the least element of the row whose window begins at `place`, or 0 where that is less:
    by how much to shift the row.

    Zero is within the range of every 8-bit integer less its zero point.
    """
    conv = layout.conv
    lows = alloc([layout.lanes], "float32", "lows")
    with vectorize(layout.lanes) as lane:
        store(lows, 0, lane)
    for _position, moved in conv.over_window():
        for start, width in blocks(layout.depth, layout.lanes):
            with vectorize(width) as lane:
                given = load(conv.source, [place + moved + start + lane])
                store(lows, tirx.min(load(lows, [lane]), given), lane)
    # Lane by lane, which a row needs once for all its panels.
    low = reduce(tirx.min, [load(lows, [lane]) for lane in range(layout.lanes)])
    return low.astype("int32") - layout.least


def _pack(layout: Layout, groups: Any, place: Expr, to: Expr, shift: Expr | None) -> None:
    """Emit the elements at `place` in groups: the first part of the depth in the lowest bits."""
    if layout.product.scalar:
        _pack_words(layout, groups, place, to)
        return
    if layout.conv.zero is not None:
        _pack_bytes(layout, groups, place, to)
        return
    # Element k of a group is k parts away, not k elements: so neighbouring groups are made of
    # neighbouring elements, and a vector of groups takes no shuffles.
    for begin, end, numbers in _stretches(layout):
        for k in strips(end - begin, layout.lanes):
            parts = [_element(layout, number, place, begin + k, shift) for number in numbers]
            store(groups, reduce(tirx.bitwise_or, parts), to + begin + k)


def _pack_bytes(layout: Layout, groups: Any, place: Expr, to: Expr) -> None:
    """Emit the bytes at `place` as groups of neighbours, in vectors; past the depth are zeros."""
    group = layout.group
    whole, rest = divmod(layout.depth, group)
    for k, width in blocks(whole, layout.lanes):
        bytes_ = load(layout.conv.source, [_span(place + k * group, width * group)])
        words = _words(layout, bytes_, width)
        emit(tirx.BufferStore(groups, words, [_span(to + k, width)]))
    if rest:
        singles = [
            load(layout.conv.source, [place + (whole * group + number)]) for number in range(rest)
        ]
        zeros = [tirx.const(0, dtype_of(layout.conv.source))] * (group - rest)
        last = shuffle([*singles, *zeros], range(group))
        store(groups, _words(layout, last, 1), to + whole)


def _span(first: Expr, count: int) -> Expr:
    return prim.Ramp(first, const(1), count) if count > 1 else first


def _words(layout: Layout, given: Expr, width: int) -> Expr:
    """Bytes as groups of integers of the instruction's type, a word each."""
    kind = "int32" if width == 1 else f"int32x{width}"
    if not layout.summed:
        zero, count, each = layout.conv.zero, width * layout.group, f"int{32 // layout.group}"
        wide = given.astype(f"{each}x{count}" if count > 1 else each)
        less = tirx.const(zero, each)
        wide = wide - (prim.Broadcast(less, count) if count > 1 else less) if zero else wide
        return tirx.reinterpret(kind, wide)
    words = tirx.reinterpret(kind, given)
    if dtype_of(layout.conv.source) == layout.product.left:
        return words
    # Bytes of the other sign, by 128 apart.
    signs = tirx.const(-0x7F7F7F80, "int32")
    return tirx.bitwise_xor(words, prim.Broadcast(signs, width) if width > 1 else signs)


def _stretches(layout: Layout) -> Iterator[tuple[int, int, list[int]]]:
    """(begin, end, numbers): which parts of the depth hold elements between two places of a part.

    Beyond the depth a part has nothing, and its weights are zeros.
    """
    part = layout.part
    held = [min(max(layout.depth - number * part, 0), part) for number in range(layout.group)]
    for begin, end in pairwise(sorted({0, *held})):
        yield begin, end, [number for number, size in enumerate(held) if size >= end]


def _element(layout: Layout, number: int, place: Expr, k: Expr, shift: Expr | None) -> Expr:
    """Element `k` of part `number`, in its bits of a group."""
    bits = 32 // layout.group
    value = load(layout.conv.source, [place + number * layout.part + k]).astype("int32")
    if shift is not None:
        value = value - shift
    if layout.group == 1:
        return value
    low = tirx.bitwise_and(value, tirx.const((1 << bits) - 1, "int32"))
    return low if number == 0 else tirx.shift_left(low, tirx.const(bits * number, "int32"))


def _pack_words(layout: Layout, groups: Any, place: Expr, to: Expr) -> None:
    """Emit the elements at `place` as words of two, in the order in which the instruction meets
    its weights.
    """
    whole, rest = divmod(layout.depth, layout.group)
    with serial(whole, "group") as k:
        _pack_group(layout, groups, place + k * layout.group, (to + k) * layout.words, layout.group)
    if rest:
        after = place + whole * layout.group
        _pack_group(layout, groups, after, (to + whole) * layout.words, rest)


def _pack_group(layout: Layout, groups: Any, place: Expr, to: Expr, held: int) -> None:
    for word, numbers in enumerate(order_of(layout)):
        parts = [
            _half(layout, place + number, high)
            for high, number in enumerate(numbers)
            if number < held
        ]
        store(groups, reduce(tirx.bitwise_or, parts) if parts else 0, to + word)


def order_of(layout: Layout) -> list[tuple[int, int]]:
    """Which elements of a group each word holds, the lower half first."""
    if layout.words == 2:
        # One instruction widens every other byte of the weights.
        return [(0, 2), (1, 3)]
    return [(2 * word, 2 * word + 1) for word in range(layout.words)]


def _half(layout: Layout, place: Expr, high: int) -> Expr:
    value = load(layout.conv.source, [place]).astype("int32")
    if layout.conv.zero:
        value = value - tirx.const(layout.conv.zero, "int32")
    if high:
        return tirx.shift_left(value, tirx.const(16, "int32"))
    return tirx.bitwise_and(value, tirx.const(0xFFFF, "int32"))
