"""Categories as columns or as other numbers."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from tvm import te, tirx

from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import layout, loops
from compiler.ir.ops.pointwise import like
from compiler.ir.values import Known, Value

Array: TypeAlias = np.ndarray[Any, Any]


def fitted(b: Builder, x: Value, width: int) -> Value:
    """x [n, columns] with `width` columns: the first ones, and zeros behind them."""
    rows, columns = x.shape

    def compute(data: te.Tensor) -> te.Tensor:
        def at(n: Any, c: Any) -> Any:
            zero = tirx.const(0, x.dtype)
            return tirx.if_then_else(c < ex.prim(columns), data(n, c), zero)

        return te.compute([ex.prim(rows), ex.prim(width)], at, name="fitted")

    return b.te(compute, x, name="fitted")


def one_hot(b: Builder, x: Value, categories: Array, lenient: bool) -> Value:
    """float32 [*x.shape, categories]: 1 in the column of the element's category, the last of equal
    ones; unknown elements fail the run unless `lenient`.
    """
    count, missing = len(categories), len(categories)
    places = mapped(b, ew.cast(b, x, "int64"), categories, np.arange(count), np.int64(missing))
    if not lenient:
        _require_known(b, places, missing)

    def compute(place: te.Tensor) -> te.Tensor:
        def at(*i: Any) -> Any:
            return tirx.EQ(place(*i[:-1]), i[-1]).astype("float32")

        return te.compute([ex.prim(e) for e in (*x.shape, count)], at, name="one_hot")

    return b.te(compute, places, name="one_hot")


def _require_known(b: Builder, places: Value, missing: int) -> None:
    message = "OneHotEncoder: an element is none of the categories, and zeros is 0"
    total = b.facts.simplify(ex.product(places.shape))
    flat = layout.reshape(b, places, [total])

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        number = ex.prim(b.checks.number(message))
        outputs[0][0] = number
        with loops.serial(total) as i, loops.when(tirx.EQ(inputs[0][i], ex.prim(missing))):
            outputs[0][0] = ex.prim(0)

    b.verify(loops.program(b, body, [((1,), "int64")], flat, name="check_categories")[0], message)


def mapped(b: Builder, x: Value, keys: Array, values: Array, default: Any) -> Value:
    """Each element's value, by a search in the sorted keys; the last of equal keys counts, and NaN
    is equal to NaN.
    """
    table = dict(zip(keys.astype(np.dtype(x.dtype)).tolist(), range(len(keys)), strict=True))
    nan = next((i for i in reversed(range(len(keys))) if keys[i] != keys[i]), None)
    known = sorted(key for key in table if key == key)
    found = np.asarray([table[key] for key in known], np.int64)
    dtype = values.dtype.name
    total, count = b.facts.simplify(ex.product(x.shape)), len(known)
    constants = [
        Known.of(np.asarray([*known, 0]), x.dtype),
        Known.of(np.append(values[found], default), dtype),
    ]

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        elements, sorted_keys, results = inputs

        def one(i: Any) -> None:
            value, low = elements[i], loops.cell("int64", 0)
            high = loops.cell("int64", count)
            with loops.serial(count.bit_length()), loops.when(low[0] < high[0]):
                middle = tirx.floordiv(low[0] + high[0], ex.prim(2))
                above = loops.cell("int64", middle)
                with loops.when(sorted_keys[above[0]] < value):
                    low[0] = above[0] + ex.prim(1)
                with loops.when(tirx.Not(sorted_keys[above[0]] < value)):
                    high[0] = above[0]
            hit = tirx.And(low[0] < ex.prim(count), tirx.EQ(sorted_keys[low[0]], value))
            chosen = results[tirx.Select(hit, low[0], ex.prim(count))]
            if nan is not None:
                chosen = tirx.Select(tirx.isnan(value), like(chosen, values[nan].item()), chosen)
            outputs[0][i] = chosen

        loops.spread(total, one, work=8 * max(count.bit_length(), 1))

    flat = layout.reshape(b, x, [total])
    made = loops.program(b, body, [((total,), dtype)], flat, *constants, name="mapped")[0]
    return layout.reshape(b, made, x.shape)
