"""Categories as columns or as other numbers."""

from typing import Any, TypeAlias

import numpy as np
from tvm import te, tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.pointwise.programs import like
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex

Array: TypeAlias = np.ndarray[Any, Any]


def fit_columns(b: Builder, x: Value, width: int) -> Value:
    """x [n, columns] with `width` columns: the first ones, and zeros behind them."""
    rows, columns = x.shape

    def compute(data: te.Tensor) -> te.Tensor:
        def element(n: Any, c: Any) -> Any:
            zero = tirx.const(0, x.dtype)
            return tirx.if_then_else(c < ex.prim(columns), data(n, c), zero)

        return te.compute([ex.prim(rows), ex.prim(width)], element, name="fitted")

    return b.te(compute, x, name="fitted")


def one_hot(b: Builder, x: Value, categories: Array, lenient: bool) -> Value:
    """float32 [*x.shape, categories]: 1 in the column of the element's category, the last of equal
    ones; unknown elements fail the run unless `lenient`.
    """
    count, missing = len(categories), len(categories)
    columns = map_values(b, ew.cast(b, x, "int64"), categories, np.arange(count), np.int64(missing))
    if not lenient:
        _require_known(b, columns, missing)

    def compute(column: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            return tirx.EQ(column(*i[:-1]), i[-1]).astype("float32")

        return te.compute([ex.prim(e) for e in (*x.shape, count)], element, name="one_hot")

    return b.te(compute, columns, name="one_hot")


def _require_known(b: Builder, columns: Value, missing: int) -> None:
    message = "OneHotEncoder: an element is none of the categories, and zeros is 0"
    total = b.facts.simplify(ex.prod(columns.shape))
    flat = layout.reshape(b, columns, [total])

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        number = ex.prim(b.checks.number(message))
        outputs[0][0] = number
        with (
            loop_programs.serial(total) as i,
            loop_programs.when(tirx.EQ(inputs[0][i], ex.prim(missing))),
        ):
            outputs[0][0] = ex.prim(0)

    b.verify(
        loop_programs.program(b, body, [((1,), "int64")], flat, name="check_categories")[0], message
    )


def map_values(b: Builder, x: Value, keys: Array, values: Array, default: Any) -> Value:
    """Each element's value, by a search in the sorted keys; the last of equal keys counts, and NaN
    is equal to NaN.
    """
    table = dict(zip(keys.astype(np.dtype(x.dtype)).tolist(), range(len(keys)), strict=True))
    nan = next((i for i in reversed(range(len(keys))) if keys[i] != keys[i]), None)
    known = sorted(key for key in table if key == key)
    indices = np.asarray([table[key] for key in known], np.int64)
    dtype = values.dtype.name
    total, count = b.facts.simplify(ex.prod(x.shape)), len(known)
    constants = [
        Known.of(np.asarray([*known, 0]), x.dtype),
        Known.of(np.append(values[indices], default), dtype),
    ]

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        elements, sorted_keys, results = inputs

        def search(i: Any) -> None:
            value, low = elements[i], loop_programs.cell("int64", 0)
            high = loop_programs.cell("int64", count)
            with loop_programs.serial(count.bit_length()), loop_programs.when(low[0] < high[0]):
                middle = tirx.floordiv(low[0] + high[0], ex.prim(2))
                above = loop_programs.cell("int64", middle)
                with loop_programs.when(sorted_keys[above[0]] < value):
                    low[0] = above[0] + ex.prim(1)
                with loop_programs.when(tirx.Not(sorted_keys[above[0]] < value)):
                    high[0] = above[0]
            hit = tirx.And(low[0] < ex.prim(count), tirx.EQ(sorted_keys[low[0]], value))
            chosen = results[tirx.Select(hit, low[0], ex.prim(count))]
            if nan is not None:
                chosen = tirx.Select(tirx.isnan(value), like(chosen, values[nan].item()), chosen)
            outputs[0][i] = chosen

        loop_programs.spread(total, search, work=8 * max(count.bit_length(), 1))

    flat = layout.reshape(b, x, [total])
    mapped = loop_programs.program(b, body, [((total,), dtype)], flat, *constants, name="mapped")[0]
    return layout.reshape(b, mapped, x.shape)
