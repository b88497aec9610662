"""Elementwise functions written as loops: series and recurrences of many steps."""

from collections.abc import Callable, Sequence
from typing import Any

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Value
from compiler.ir.ops.pointwise import broadcast
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex


def by_loops(
    b: Builder,
    function: Callable[..., Any],
    values: Sequence[Value],
    dtype: str,
    *,
    work: int,
    name: str,
) -> Value:
    """`function` of the elements of broadcast values, all in `dtype`; it emits the statements that
    compute an element, and returns that.

    work: the operations for an element, about.
    """
    shape = broadcast.joined_shape(b, *(value.shape for value in values))
    size = b.facts.simplify(ex.prod(shape))
    flat = [
        layout.reshape(b, broadcast.expand(b, ew.cast(b, value, dtype), shape), [size])
        for value in values
    ]

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        def element(i: Any) -> None:
            outputs[0][i] = function(*(buffer[i] for buffer in inputs))

        loop_programs.spread(size, element, work)

    (out,) = loop_programs.program(b, body, [((size,), dtype)], *flat, name=name)
    return layout.reshape(b, out, shape)
