"""Heads of an attention that read the same keys and values, and the rows that they read."""

from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from compiler.passes.cpu.families.attention.match import Attention
from compiler.targets.vector_unit import LINE
from compiler.tir.building import prefetch
from compiler.tir.exprs import (
    Expr,
    Table,
    as_int,
    bits_of,
    const,
    dtype_of,
    loads,
    nodes,
    rewrite,
    substitute,
)
from compiler.tir.stages import Axis
from relaxd.contract.bundle.byte_rows import SCALE_BYTES


@dataclass(frozen=True)
class Group:
    """Heads that read the same keys: places `first` to `first + count` along the axis `head`.

    batch: the axes of the attention with groups in place of heads; row: the axis of queries, where
    `queries` of them in a row are members of the group for each of its heads.
    """

    batch: tuple[Axis, ...]
    head: Axis | None
    count: int
    row: Axis | None = None
    queries: int = 1

    def with_queries(self, row: Axis, members: int) -> "Group":
        """As many queries in a row as make about so many members."""
        queries = max(members // self.count, 1)
        return replace(self, count=self.count * queries, row=row, queries=queries)

    def at(self, place: Table, i: Expr | int) -> Table:
        """The place of member `i` of the group: head by head the queries from that of `place` on,
        past the last one that one again.
        """
        heads = self.count // self.queries
        if self.row is not None and self.queries > 1:
            i, query = (
                divmod(i, self.queries)
                if isinstance(i, int)
                else (tirx.truncdiv(i, const(self.queries)), tirx.truncmod(i, const(self.queries)))
            )
            row = self.row.var
            place = {**place, row: tirx.min(place[row] + query, self.row.extent - 1)}
        if self.head is None:
            return place
        return {**place, self.head.var: place[self.head.var] * heads + i}

    def tiles(self, most: int) -> list[tuple[int, int]]:
        """(first, count) of heads that are computed together, at most so many."""
        tiles = -(-self.count // max(most, 1))
        sizes = [self.count // tiles + (i < self.count % tiles) for i in range(tiles)]
        return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def group_of(attention: Attention) -> Group:
    """The heads that share keys and values: along the last axis, if both read the same place for
    some of its places in a row.
    """
    if not attention.batch:
        return Group((), None, 1)
    *outer, head = attention.batch
    extent = as_int(head.extent)
    sizes = {
        size
        for read in (load_of(attention.key), load_of(attention.value))
        for size in _shared(read.indices[0], head.var, extent)
    }
    if len(sizes) != 1 or extent is None or extent % (size := sizes.pop()):
        return Group(attention.batch, head, 1)
    return Group((*outer, replace(head, extent=const(extent // size))), head, size)


def _shared(index: Expr, var: Any, extent: int | None) -> set[int]:
    """How many places of the axis in a row the index is the same for."""
    divided: set[int] = set()

    def quotient(node: Expr) -> Expr | None:
        if isinstance(node, prim.FloorDiv | prim.Div) and node.a.same_as(var):
            size = as_int(node.b)
            if size is not None and size > 0:
                divided.add(size)
                return const(0)
        return None

    left = rewrite(index, quotient)
    if any(node.same_as(var) for node in nodes(left)):
        return {1}
    return divided or ({extent} if extent else {1})


def prefetch_row(source: Any, at: Table, along: Any, part: tuple[Expr, int]) -> None:
    """Prefetch the lines of a part, (first, count), of a row of keys or values."""
    first, count = part
    read = load_of(source)
    if dtype_of(read) == "int8":
        # With the scale, without which one line in 17 of rows of 64 numbers would be left out.
        count += SCALE_BYTES
    for start in range(0, count, LINE // (bits_of(dtype_of(read)) // 8)):
        prefetch(read.source, substitute(read.indices[0], {**at, along: first + start}))


def load_of(read: Any) -> Any:
    """The load of a key or a value, which may be stored in fewer bits than it is computed in."""
    return loads(read)[0]
