"""What the parts of a row of scores leave, where tasks take some of its columns each, and how the
parts are added up to the result of a query.
"""

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
    """What is left of each head's row by each part of the columns, by the row's number and the
    part's: the greatest score, the sum of powers, and the values weighed by them.

    number: gives the number of the row at a place; masked: whether a mask may hide parts, of whose
    columns nothing is left but a greatest score of -inf.
    """

    number: Callable[[Table], Expr]
    count: Expr
    greatest: Any
    totals: Any
    weighed: Any
    masked: bool

    def seen(self, index: Expr) -> Expr | bool:
        """Whether the row's part is not hidden."""
        greatest = load(self.greatest, [index])
        return not self.masked or greatest != tirx.const(float("-inf"), "float32")


def width_of(attention: Attention, unit: VectorUnit) -> int:
    """Columns of the values that are summed up together: two or four vectors, as registers allow,
    or what divides them.
    """
    width = (4 if unit.registers >= 32 else 2) * unit.lanes(32)
    while attention.head_width % width:
        width //= 2
    return width


def emit_sum(attention: Attention, unit: VectorUnit, at: Table, parts: Parts) -> None:
    """The result of a query: its parts added up, each by how far its greatest score is below that
    of all. Hidden parts add nothing.
    """
    at = let_all_opaque(at)
    width = width_of(attention, unit)
    lanes = min(width, unit.lanes(32))
    begin = let("begin", parts.number(at) * parts.count)
    greatest = alloc([1], "float32", "greatest")
    total = alloc([1], "float32", "total")
    store(greatest, float("-inf"), 0)
    # Powers of a part are of its scores less its own greatest one.
    with serial(parts.count, "part") as part:
        store(greatest, tirx.max(load(greatest, [0]), load(parts.greatest, [begin + part])), 0)
    store(total, 0, 0)
    with serial(parts.count, "part") as part, when(parts.seen(begin + part)):
        # Kept in its place: it scales the part's values below.
        apart = load(parts.greatest, [begin + part]) - load(greatest, [0])
        store(parts.greatest, tirx.exp(apart), begin + part)
        scaled = load(parts.greatest, [begin + part]) * load(parts.totals, [begin + part])
        store(total, load(total, [0]) + scaled, 0)
    with when(is_undefined(load(total, [0])) if attention.safe else False):
        _emit_zero_weights(attention, at, (width, lanes))
    with otherwise(), serial(attention.head_width // width, "columns") as block:
        acc = alloc([width], "float32", "acc")
        for lane in across(width, lanes):
            store(acc, 0, lane)
        with serial(parts.count, "part") as part, when(parts.seen(begin + part)):
            for lane in across(width, lanes):
                start = (begin + part) * attention.head_width + block * width
                weighed = load(parts.weighed, [start + lane])
                scale = load(parts.greatest, [begin + part])
                store(acc, load(acc, [lane]) + weighed * scale, lane)
        for lane in across(width, lanes):
            place = {**at, attention.width.var: block * width + lane}
            result = load(acc, [lane]) / load(total, [0])
            store(attention.target.source, result, substitute(attention.target.indices[0], place))


def _emit_zero_weights(attention: Attention, at: Table, sizes: tuple[int, int]) -> None:
    """The result of a query whose weights are zeros, (width, lanes) columns at a time: zeros, NaN
    where a value is NaN or infinite.
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
                place = {**at, attention.column.var: column, attention.width.var: index}
                value = substitute(attention.real_value, place)
                store(acc, load(acc, [lane]) + load(weight, [0]) * value, lane)
        for lane in across(width, lanes):
            place = {**at, attention.width.var: block * width + lane}
            index = substitute(attention.target.indices[0], place)
            store(attention.target.source, load(acc, [lane]), index)
