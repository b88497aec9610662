"""Partial results of rows of scores whose columns are divided among tasks, and their sum."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from compiler.passes.cpu.families.attention.match import Attention
from compiler.passes.cpu.families.attention.softmax import is_undefined
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import (
    across,
    alloc,
    let,
    let_all_opaque,
    otherwise,
    serial,
    store,
    when,
)
from compiler.tir.exprs import Expr, Table, load, substitute


@dataclass(frozen=True)
class Parts:
    """Partial results by row and part of the columns: the greatest score, the sum of powers, and
    the values weighed by them.

    number: returns the number of the row at a position; masked: True if a mask may hide all columns
    of a part, whose greatest score is then -inf and whose other results are undefined.
    """

    number: Callable[[Table], Expr]
    count: Expr
    greatest: Any
    totals: Any
    weighed: Any
    masked: bool

    def is_visible(self, index: Expr) -> Expr | bool:
        """The condition that the mask does not hide all of the row's part."""
        greatest = load(self.greatest, [index])
        return not self.masked or greatest != tirx.const(float("-inf"), "float32")


def width_of(attention: Attention, unit: VectorUnit) -> int:
    """Columns of the values that are accumulated at once: two or four vectors, as registers allow,
    or a divisor of that.
    """
    width = (4 if unit.registers >= 32 else 2) * unit.lanes(32)
    while attention.head_width % width:
        width //= 2
    return width


def emit_sum(attention: Attention, unit: VectorUnit, position: Table, parts: Parts) -> None:
    """Emit the result of a query: the sum of its parts, each scaled by exp(its greatest score - the
    greatest of all). Hidden parts add nothing.
    """
    position = let_all_opaque(position)
    width = width_of(attention, unit)
    lanes = min(width, unit.lanes(32))
    begin = let("begin", parts.number(position) * parts.count)
    greatest = alloc([1], "float32", "greatest")
    total = alloc([1], "float32", "total")
    store(greatest, float("-inf"), 0)
    # The powers of a part are exp(score - its own greatest score).
    with serial(parts.count, "part") as part:
        store(greatest, tirx.max(load(greatest, [0]), load(parts.greatest, [begin + part])), 0)
    store(total, 0, 0)
    with serial(parts.count, "part") as part, when(parts.is_visible(begin + part)):
        # Stored in its place: it scales the part's values below.
        difference = load(parts.greatest, [begin + part]) - load(greatest, [0])
        store(parts.greatest, tirx.exp(difference), begin + part)
        scaled = load(parts.greatest, [begin + part]) * load(parts.totals, [begin + part])
        store(total, load(total, [0]) + scaled, 0)
    with when(is_undefined(load(total, [0])) if attention.safe else False):
        _emit_zero_weights(attention, position, (width, lanes))
    with otherwise(), serial(attention.head_width // width, "columns") as block:
        acc = alloc([width], "float32", "acc")
        for lane in across(width, lanes):
            store(acc, 0, lane)
        with serial(parts.count, "part") as part, when(parts.is_visible(begin + part)):
            for lane in across(width, lanes):
                start = (begin + part) * attention.head_width + block * width
                weighed = load(parts.weighed, [start + lane])
                scale = load(parts.greatest, [begin + part])
                store(acc, load(acc, [lane]) + weighed * scale, lane)
        for lane in across(width, lanes):
            here = {**position, attention.width.var: block * width + lane}
            result = load(acc, [lane]) / load(total, [0])
            store(attention.target.source, result, substitute(attention.target.indices[0], here))


def _emit_zero_weights(attention: Attention, position: Table, sizes: tuple[int, int]) -> None:
    """Emit the result of a query whose weights are zeros, (width, lanes) columns at a time: zeros,
    NaN where a value is NaN or infinite.
    """
    width, lanes = sizes
    # From memory, as TVM takes 0 times anything for 0.
    weight = alloc([1], "float32", "weight")
    store(weight, 0, 0)
    with serial(attention.head_width // width, "columns") as block:
        acc = alloc([width], "float32", "acc")
        for lane in across(width, lanes):
            store(acc, 0, lane)
        with serial(attention.column.extent, "column") as column:
            for lane in across(width, lanes):
                index = block * width + lane
                element = {**position, attention.column.var: column, attention.width.var: index}
                value = substitute(attention.scaled_value, element)
                store(acc, load(acc, [lane]) + load(weight, [0]) * value, lane)
        for lane in across(width, lanes):
            element = {**position, attention.width.var: block * width + lane}
            index = substitute(attention.target.indices[0], element)
            store(attention.target.source, load(acc, [lane]), index)
