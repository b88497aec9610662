"""Writing through a view: the view of a tensor's positions says where each of its elements goes."""

from typing import Any

import numpy as np
from tvm import te

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Known, Value
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


def of(b: Builder, x: Value) -> Value:
    """int64 of x's shape: each element's position in the flattened tensor."""
    extents = [ex.prim(extent) for extent in x.shape]

    def flat(*index: Any) -> Any:
        position = ex.prim(0)
        for i, extent in zip(index, extents, strict=True):
            position = position * extent + i
        return position

    if all(isinstance(extent, int) for extent in x.shape) and ex.prod(x.shape) <= 64:  # type: ignore[operator]
        return Known(
            np.arange(int(ex.prod(x.shape)), dtype=np.int64).reshape([int(e) for e in x.shape]),
            "int64",
        )  # type: ignore[arg-type]
    return b.te(lambda: te.compute(extents, flat, name="positions"), name="positions")


def put(b: Builder, base: Value, positions: Value, values: Value) -> Value:
    """`base` with its elements at `positions`, which differ, replaced by `values` of the same shape
    as `positions`.
    """
    if isinstance(base, Known) and isinstance(positions, Known) and isinstance(values, Known):
        symbolic = base.symbolic or values.symbolic
        data = base.data.astype(object) if symbolic else base.data.copy()
        data.reshape(-1)[positions.data.reshape(-1)] = values.data.reshape(-1)
        return Known.of(data, base.dtype)
    size, count = (b.facts.simplify(ex.prod(value.shape)) for value in (base, positions))
    flat = [
        layout.reshape(b, b.tensor(value), [n])
        for value, n in ((base, size), (positions, count), (values, count))
    ]

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        old, index, new = inputs
        (out,) = outputs
        loop_programs.copy(old, out, size)

        def write(i: Any) -> None:
            out[index[i]] = new[i]

        loop_programs.spread(count, write)

    (result,) = loop_programs.program(b, body, [((size,), base.dtype)], *flat, name="put")
    return layout.reshape(b, result, base.shape)
