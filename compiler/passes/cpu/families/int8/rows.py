"""The left side of an integer matmul: rows of int8, or of integers in float32, gathered into
scratch memory as groups for one instruction.

Bytes are copied, with signed and unsigned converted to what the instruction takes. An 8-bit integer
less its zero point may take 9 bits, which fit into 8 after subtracting the least of its row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.int8.layout import DUAL_WORDS, Layout
from compiler.passes.cpu.shared.lanes import shuffle, vector_index
from compiler.tir.building import alloc, blocks, emit, serial, store, strips, vectorize
from compiler.tir.exprs import Expr, dtype_of, load, substitute


@dataclass(frozen=True)
class Rows:
    """A task's rows as groups of integers; shifts: what was subtracted from each row, None where
    nothing was.
    """

    groups: Any
    shifts: Any

    def shift(self, layout: Layout, row: Expr) -> Expr | None:
        """The number that was subtracted from all elements of a row, None for 0."""
        if self.shifts is not None:
            return load(self.shifts, [row])
        zero = layout.left_zero if layout.has_column_totals else 0
        return tirx.const(-zero, "int32") if zero else None


def gather_rows(layout: Layout, rows: Rows, first: Expr, count: Expr) -> None:
    """Emit the groups of `count` rows from number `first` on, each with its whole window."""
    conv = layout.conv
    with serial(count, "row") as r:
        begin = substitute(conv.origin, conv.emit_position(first + r))
        group = r * layout.length
        if rows.shifts is None:
            shift = None
        else:
            store(rows.shifts, _emit_shift(layout, begin), r)
            shift = load(rows.shifts, [r])
        # Neighbouring positions share most of their windows, which are gathered again all the
        # same: with one run of groups for each row the innermost loop computes no addresses.
        for position, offset in conv.over_window():
            _pack(layout, rows.groups, begin + offset, group + position * layout.part, shift)


def _emit_shift(layout: Layout, begin: Expr) -> Expr:
    """Emit the shift of the row whose window begins at `begin`: the lesser of its least element
    and 0, which is in the range of every 8-bit integer less its zero point.
    """
    conv = layout.conv
    lows = alloc([layout.lanes], "float32", "lows")
    with vectorize(layout.lanes) as lane:
        store(lows, 0, lane)
    for _position, offset in conv.over_window():
        for start, width in blocks(layout.depth, layout.lanes):
            with vectorize(width) as lane:
                element = load(conv.source, [begin + offset + start + lane])
                store(lows, tirx.min(load(lows, [lane]), element), lane)
    # Lane by lane, which is done once for all panels.
    low = reduce(tirx.min, [load(lows, [lane]) for lane in range(layout.lanes)])
    return low.astype("int32") - layout.least


def _pack(layout: Layout, groups: Any, source: Expr, to: Expr, shift: Expr | None) -> None:
    """Emit groups of the elements from `source` on: the first part of the depth in the lowest
    bits.
    """
    if layout.instruction.scalar:
        _pack_words(layout, groups, source, to)
        return
    if layout.conv.zero is not None:
        _pack_bytes(layout, groups, source, to)
        return
    # The elements of a group are one part apart, not neighbours: a vector of neighbouring groups
    # is made of contiguous elements, without shuffles.
    for begin, end, numbers in _parts_of_group(layout):
        for k in strips(end - begin, layout.lanes):
            parts = [_element(layout, number, source, begin + k, shift) for number in numbers]
            store(groups, reduce(tirx.bitwise_or, parts), to + begin + k)


def _pack_bytes(layout: Layout, groups: Any, source: Expr, to: Expr) -> None:
    """Emit groups of neighbouring bytes from `source` on, in vectors, padded with zeros."""
    group = layout.group
    full, rest = divmod(layout.depth, group)
    for k, width in blocks(full, layout.lanes):
        bytes_ = load(layout.conv.source, [vector_index(width * group, source + k * group)])
        words = _to_words(layout, bytes_, width)
        emit(tirx.BufferStore(groups, words, [vector_index(width, to + k)]))
    if rest:
        singles = [
            load(layout.conv.source, [source + (full * group + number)]) for number in range(rest)
        ]
        zeros = [tirx.const(0, dtype_of(layout.conv.source))] * (group - rest)
        last = shuffle([*singles, *zeros], range(group))
        store(groups, _to_words(layout, last, 1), to + full)


def _to_words(layout: Layout, elements: Expr, width: int) -> Expr:
    """Convert bytes to words, each a group of integers of the instruction's type."""
    dtype = "int32" if width == 1 else f"int32x{width}"
    if not layout.has_column_totals:
        zero, count, lane_dtype = layout.conv.zero, width * layout.group, f"int{32 // layout.group}"
        widened = elements.astype(f"{lane_dtype}x{count}" if count > 1 else lane_dtype)
        zero_point = tirx.const(zero, lane_dtype)
        widened = (
            widened - (prim.Broadcast(zero_point, count) if count > 1 else zero_point)
            if zero
            else widened
        )
        return tirx.reinterpret(dtype, widened)
    words = tirx.reinterpret(dtype, elements)
    if dtype_of(layout.conv.source) == layout.instruction.left:
        return words
    # Signed and unsigned differ by 128.
    signs = tirx.const(-0x7F7F7F80, "int32")
    return tirx.bitwise_xor(words, prim.Broadcast(signs, width) if width > 1 else signs)


def _parts_of_group(layout: Layout) -> Iterator[tuple[int, int, list[int]]]:
    """(begin, end, numbers): the parts of the depth that have elements from begin to end of a part.

    Parts end with the depth; weights beyond it are zeros.
    """
    part = layout.part
    sizes = [min(max(layout.depth - number * part, 0), part) for number in range(layout.group)]
    for begin, end in pairwise(sorted({0, *sizes})):
        yield begin, end, [number for number, size in enumerate(sizes) if size >= end]


def _element(layout: Layout, number: int, source: Expr, k: Expr, shift: Expr | None) -> Expr:
    """Element `k` of part `number`, shifted to its bits of a group."""
    bits = 32 // layout.group
    value = load(layout.conv.source, [source + number * layout.part + k]).astype("int32")
    if shift is not None:
        value = value - shift
    if layout.group == 1:
        return value
    low = tirx.bitwise_and(value, tirx.const((1 << bits) - 1, "int32"))
    return low if number == 0 else tirx.shift_left(low, tirx.const(bits * number, "int32"))


def _pack_words(layout: Layout, groups: Any, source: Expr, to: Expr) -> None:
    """Emit the elements from `source` on as words of two, in the order of the instruction's
    weights.
    """
    full, rest = divmod(layout.depth, layout.group)
    with serial(full, "group") as k:
        pack_group(layout, groups, source + k * layout.group, (to + k) * layout.words, layout.group)
    if rest:
        rest_begin = source + full * layout.group
        pack_group(layout, groups, rest_begin, (to + full) * layout.words, rest)


def pack_group(layout: Layout, groups: Any, source: Expr, to: Expr, count: int) -> None:
    """Emit the first `count` elements of a group from `source` on as words of two."""
    for word, numbers in enumerate(word_order(layout)):
        parts = [
            _load_half(layout, source + number, high)
            for high, number in enumerate(numbers)
            if number < count
        ]
        store(groups, reduce(tirx.bitwise_or, parts) if parts else 0, to + word)


def word_order(layout: Layout) -> list[tuple[int, int]]:
    """The elements of a group in each word, (lower half, upper half)."""
    if layout.words == DUAL_WORDS:
        # One instruction widens every other byte of the weights.
        return [(0, 2), (1, 3)]
    return [(2 * word, 2 * word + 1) for word in range(layout.words)]


def load_left(layout: Layout, index: Expr) -> Expr:
    """An element less its zero point, an int32."""
    value = load(layout.conv.source, [index]).astype("int32")
    return value - tirx.const(layout.conv.zero, "int32") if layout.conv.zero else value


def _load_half(layout: Layout, index: Expr, high: int) -> Expr:
    value = load_left(layout, index)
    if high:
        return tirx.shift_left(value, tirx.const(16, "int32"))
    return tirx.bitwise_and(value, tirx.const(0xFFFF, "int32"))
