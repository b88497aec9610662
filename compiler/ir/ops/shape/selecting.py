"""Selecting what a run-time condition holds for: the count becomes a dim, matched at run time."""

from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.indices import Indices
from compiler.ir.graph.values import Known, Tensor, Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def true_indices(b: Builder, flags: Value, hint: str) -> Tensor:
    """The indices, ascending, at which a bool vector holds; their number is a new dim."""
    extent = flags.shape[0]

    def count(inputs: list[Any], outputs: list[Any]) -> None:
        hits = loop_programs.cell()
        with loop_programs.serial(extent) as i:
            hits[0] = hits[0] + inputs[0][i].astype("int64")
        outputs[0][0] = hits[0]

    def fill(inputs: list[Any], outputs: list[Any]) -> None:
        position = loop_programs.cell()
        with loop_programs.serial(extent) as i, loop_programs.when(inputs[0][i]):
            outputs[0][position[0]] = i
            position[0] = position[0] + 1

    (total,) = loop_programs.program(b, count, [((1,), "int64")], flags, name="count")
    number: Extent = b.known_counts(total, hint).scalars()[0]
    return loop_programs.program(b, fill, [((number,), "int64")], flags, name="places")[0]


def nonzero(b: Builder, x: Value) -> Value:
    """Coordinates of the elements that are not zero, one column each, in row-major order."""
    if isinstance(x, Known) and not x.symbolic:
        return Known(
            np.array(np.nonzero(x.data) if x.shape else np.zeros((0, int(x.data != 0))), np.int64),
            "int64",
        )
    flat = layout.reshape(b, x, [b.facts.simplify(ex.prod(x.shape))])
    indices = true_indices(b, ew.cast(b, flat, "bool"), "nonzero")
    rank = len(x.shape)
    strides = [ex.divisor(ex.prod(x.shape[axis + 1 :])) for axis in range(rank)]

    def compute(index: te.Tensor) -> te.Tensor:
        def element(axis: Any, column: Any) -> Any:
            result = ex.prim(0)
            for d in reversed(range(rank)):
                coordinate = tirx.floormod(
                    tirx.floordiv(index(column), strides[d]), ex.divisor(x.shape[d])
                )
                result = tirx.Select(tirx.EQ(axis, ex.prim(d)), coordinate, result)
            return result

        return te.compute([ex.prim(rank), ex.prim(indices.shape[0])], element, name="coordinates")

    return b.te(compute, indices, name="coordinates")


def compress(b: Builder, x: Value, condition: Value, axis: int | None) -> Value:
    """Slices of x along an axis (elements of flat x without one) where the condition, a bool
    vector, holds.
    """
    data = layout.reshape(b, x, [b.facts.simplify(ex.prod(x.shape))]) if axis is None else x
    position = 0 if axis is None else layout.axis_of(axis, len(x.shape))
    b.require(
        ex.less_equal(condition.shape[0], data.shape[position]),
        "Compress: the condition is longer than the axis",
    )
    if isinstance(condition, Known) and not condition.symbolic:
        indices: Value = Known(np.flatnonzero(condition.data).astype(np.int64), "int64")
    else:
        indices = true_indices(b, condition, "selected")
    return layout.take(b, data, Indices.from_program(indices, data.shape[position]), position)
