"""Running sums and products along an axis that may be known only at run time."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.ops.shape.axes import normalize_axes
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent


def around(b: Builder, shape: Sequence[Extent], axis: Extent) -> tuple[Extent, Extent, Extent]:
    """The product of the extents before an axis, its own, and that of those after it; a run-time
    axis is checked.
    """
    (position,) = normalize_axes(b, [axis], len(shape))
    parts = [
        (ex.prod(shape[:d]), extent, ex.prod(shape[d + 1 :])) for d, extent in enumerate(shape)
    ]
    before, own, after = parts[-1]
    for d, part in enumerate(parts[:-1]):
        # Of positions one holds, so that each product is a choice of its own and none of choices.
        is_here = ex.equal(d, position)
        before, own, after = (
            ex.select(is_here, here, other)
            for here, other in zip(part, (before, own, after), strict=True)
        )
    first, middle, last = b.extents([before, own, after], "around")
    return first, middle, last


def cumulate(
    b: Builder,
    x: Value,
    axis: Extent,
    combine: Callable[[Any, Any], Any],
    start: float,
    exclusive: bool,
    reverse: bool,
) -> Value:
    """Each element combined with all before it (after it with `reverse`), itself left out with
    `exclusive`.

    16-bit floats accumulate in float32.
    """
    outer, count, inner = around(b, x.shape, axis)
    work = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    size = b.facts.simplify(ex.prod(x.shape))

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        def scan_row(i: Any) -> None:
            row, column = tirx.floordiv(i, ex.divisor(inner)), tirx.floormod(i, ex.divisor(inner))
            so_far = loop_programs.cell(work, start)
            with loop_programs.serial(count) as step:
                index = (
                    row * ex.prim(count) + (ex.prim(ex.sub(count, 1)) - step if reverse else step)
                ) * ex.prim(inner) + column
                if exclusive:
                    outputs[0][index] = so_far[0]
                so_far[0] = combine(so_far[0], inputs[0][index])
                if not exclusive:
                    outputs[0][index] = so_far[0]

        loop_programs.spread(ex.mul(outer, inner), scan_row, count)

    flat = layout.reshape(b, ew.cast(b, x, work), [size])
    (out,) = loop_programs.program(b, body, [((size,), work)], flat, name="cumulate")
    return ew.cast(b, layout.reshape(b, out, x.shape), x.dtype)


def running_extremes(b: Builder, x: Value, axis: int, greatest: bool) -> tuple[Value, Value]:
    """The greatest (or least) of each element and all before it along an axis, and where it was
    seen last; a NaN is both, and stays.
    """
    outer, count, inner = around(b, x.shape, axis)
    size = b.facts.simplify(ex.prod(x.shape))
    work = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        values, indices = outputs

        def scan_row(i: Any) -> None:
            row, column = tirx.floordiv(i, ex.divisor(inner)), tirx.floormod(i, ex.divisor(inner))
            base = row * ex.prim(count) * ex.prim(inner) + column
            so_far = loop_programs.cell(work)
            seen = loop_programs.cell("int64", 0)
            with loop_programs.serial(count) as step:
                index = base + step * ex.prim(inner)
                item = inputs[0][index]
                beyond = item >= so_far[0] if greatest else item <= so_far[0]
                is_new = tirx.Or(tirx.EQ(step, ex.prim(0)), beyond)
                if ew.is_float(work):
                    is_new = tirx.Or(is_new, tirx.isnan(item))
                with loop_programs.when(is_new):
                    so_far[0] = item
                    seen[0] = step
                values[index] = so_far[0]
                indices[index] = seen[0]

        loop_programs.spread(ex.mul(outer, inner), scan_row, count)

    flat = layout.reshape(b, ew.cast(b, x, work), [size])
    values, indices = loop_programs.program(
        b, body, [((size,), work), ((size,), "int64")], flat, name="running_extremes"
    )
    return (
        ew.cast(b, layout.reshape(b, values, x.shape), x.dtype),
        layout.reshape(b, indices, x.shape),
    )
