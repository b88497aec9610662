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
    """Heads that read the same keys: `count` neighbours along the axis `head`.

    batch: the axes of the attention with groups in place of heads; row: the axis of queries, where
    `queries` of them in a row are members of the group for each of its heads.
    """

    batch: tuple[Axis, ...]
    head: Axis | None
    count: int
    row: Axis | None = None
    queries: int = 1

    def with_queries(self, row: Axis, members: int) -> "Group":
        """A group of so many queries that it has about `members` members."""
        queries = max(members // self.count, 1)
        return replace(self, count=self.count * queries, row=row, queries=queries)

    def member(self, position: Table, i: Expr | int) -> Table:
        """The position of member `i` of the group: head by head, the queries from that of
        `position` on; past the last query it is the last one again.
        """
        heads = self.count // self.queries
        if self.row is not None and self.queries > 1:
            i, query = (
                divmod(i, self.queries)
                if isinstance(i, int)
                else (tirx.truncdiv(i, const(self.queries)), tirx.truncmod(i, const(self.queries)))
            )
            row = self.row.var
            position = {**position, row: tirx.min(position[row] + query, self.row.extent - 1)}
        if self.head is None:
            return position
        return {**position, self.head.var: position[self.head.var] * heads + i}

    def tiles(self, most: int) -> list[tuple[int, int]]:
        """(first, count) of the blocks of heads that are computed at once, of at most `most`."""
        tiles = -(-self.count // max(most, 1))
        sizes = [self.count // tiles + (i < self.count % tiles) for i in range(tiles)]
        return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def group_of(attention: Attention) -> Group:
    """The heads that share keys and values: neighbours along the last axis of `batch`, if both are
    read at the same position for as many of them.
    """
    if not attention.batch:
        return Group((), None, 1)
    *outer, head = attention.batch
    extent = as_int(head.extent)
    sizes = {
        size
        for read in (load_of(attention.key), load_of(attention.value))
        for size in _group_sizes(read.indices[0], head.var, extent)
    }
    if len(sizes) != 1 or extent is None or extent % (size := sizes.pop()):
        return Group(attention.batch, head, 1)
    return Group((*outer, replace(head, extent=const(extent // size))), head, size)


def _group_sizes(index: Expr, var: Any, extent: int | None) -> set[int]:
    """How many neighbours along the axis have the same index: every divisor that it has."""
    sizes: set[int] = set()

    def quotient(node: Expr) -> Expr | None:
        if isinstance(node, prim.FloorDiv | prim.Div) and node.a.same_as(var):
            size = as_int(node.b)
            if size is not None and size > 0:
                sizes.add(size)
                return const(0)
        return None

    rest = rewrite(index, quotient)
    if any(node.same_as(var) for node in nodes(rest)):
        return {1}
    return sizes or ({extent} if extent else {1})


def prefetch_row(source: Any, position: Table, along: Any, part: tuple[Expr, int]) -> None:
    """Emit prefetches of a part, (first, count), of a row of keys or values."""
    first, count = part
    read = load_of(source)
    if dtype_of(read) == "int8":
        # With the scale: without it one line in 17 of rows of 64 elements would be left out.
        count += SCALE_BYTES
    for start in range(0, count, LINE // (bits_of(dtype_of(read)) // 8)):
        prefetch(read.source, substitute(read.indices[0], {**position, along: first + start}))


def load_of(read: Any) -> Any:
    """The load of a key or a value, which may be stored in fewer bits than it is computed in."""
    return loads(read)[0]
