"""The k-th least element of each row by quickselect. Of several equal elements the index is the one
that torch names, as pivots and swaps follow its rule: the median of the first, the middle and the
last element, and no element equal to the pivot passed over.
"""

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.ops.shape.sorting import precedes
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent

After = Callable[[Any, Any], Any]
"""Whether one element comes after another, both as numbers of a row's elements."""


def select_kth(b: Builder, rows: Value, k: Extent) -> tuple[Tensor, Tensor]:
    """Each row's k-th least element, from 1, and its index; NaN is the greatest."""
    count, columns = rows.shape
    b.require(ex.both(ex.less_equal(1, k), ex.less_equal(k, columns)), f"kthvalue: k is {k}")
    # Rows are searched before that check is known to hold.
    position = tirx.max(tirx.min(ex.prim(k), ex.prim(columns)) - 1, ex.prim(0))

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        (data,), (values, indices, order) = inputs, outputs

        def row(r: Any) -> None:
            base = r * ex.prim(columns)
            with loop_programs.serial(columns) as i:
                order[base + i] = i
            with loop_programs.when(ex.prim(columns) > 0):
                _Search(
                    order, base, lambda p, q: precedes(data[r, p], data[r, q], rows.dtype, True)
                ).run(ex.prim(columns), position)
                values[r] = data[r, order[base + position]]
                indices[r] = order[base + position]

        loop_programs.spread(count, row, ex.mul(columns, 8))

    size = b.facts.simplify(ex.mul(count, columns))
    forms = [((count,), rows.dtype), ((count,), "int64"), ((size,), "int64")]
    values, indices, _ = loop_programs.program(b, body, forms, rows, name="kth")
    return values, indices


class _Search:
    """The search in one row: `order`, from `base` on, holds the numbers of its elements."""

    def __init__(self, order: Any, base: Any, after: After) -> None:
        self.order, self.base, self.after = order, base, after
        self.low, self.high = loop_programs.cell(), loop_programs.cell()
        self.up, self.down = loop_programs.cell(), loop_programs.cell()
        self.held = loop_programs.cell()

    def run(self, count: Any, position: Any) -> None:
        """Bring the element of a position in sorted order to that position."""
        low, high, up, down = self.low, self.high, self.up, self.down
        low[0], high[0] = ex.prim(0), count - 1
        with T.While(high[0] > low[0] + 1):
            self._choose_pivot()
            self._part()
            # Both bounds follow from where the pivot came to stand.
            with loop_programs.when(down[0] <= position):
                low[0] = up[0]
            with loop_programs.when(down[0] >= position):
                high[0] = down[0] - 1
        with loop_programs.when(tirx.EQ(high[0], low[0] + 1)):
            self._settle(low[0], high[0])

    def _choose_pivot(self) -> None:
        """The median of three at `low`, the least of them behind it, the greatest at `high`."""
        low, high = self.low[0], self.high[0]
        self._swap(low + tirx.floordiv(high - low, ex.prim(2)), low + 1)
        self._settle(low + 1, high)
        self._settle(low, high)
        self._settle(low + 1, low)

    def _part(self) -> None:
        """Swap elements that stand on the wrong side of the pivot, then it between the sides."""
        low, up, down = self.low[0], self.up, self.down
        up[0], down[0] = low + 1, self.high[0]
        more = loop_programs.cell("bool", True)
        with T.While(more[0]):
            up[0] = up[0] + 1
            with T.While(self._is_after(low, up[0])):
                up[0] = up[0] + 1
            down[0] = down[0] - 1
            with T.While(self._is_after(down[0], low)):
                down[0] = down[0] - 1
            more[0] = down[0] >= up[0]
            with loop_programs.when(more[0]):
                self._swap(up[0], down[0])
        self._swap(low, down[0])

    def _settle(self, first: Any, second: Any) -> None:
        """Put two elements in order."""
        with loop_programs.when(self._is_after(first, second)):
            self._swap(first, second)

    def _is_after(self, first: Any, second: Any) -> Any:
        return self.after(self.order[self.base + first], self.order[self.base + second])

    def _swap(self, first: Any, second: Any) -> None:
        self.held[0] = self.order[self.base + first]
        self.order[self.base + first] = self.order[self.base + second]
        self.order[self.base + second] = self.held[0]
