"""Layers whose state goes from token to token: linear attention, and causal convolution of each
channel.
"""

from typing import Any

from tvm import te, tirx

from compiler.ir.graph import loop_programs
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.values import Tensor, Value
from compiler.ir.ops.nn.norm import wide
from compiler.ir.ops.pointwise import elementwise as ew
from compiler.ir.ops.shape import layout
from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.extents import Extent
from compiler.recurrences.linear_attention import LinearAttention, Tensors, emit_linear_attention


def linear_attention(
    b: Builder,
    query: Value,
    key: Value,
    value: Value,
    past: Value | None,
    decay: Value | None,
    beta: Value | None,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """A matrix of state for each head of keys, updated token by token and read by the query heads
    that share it.

    query [batch, heads, length, dk], key [batch, groups, length, dk], value [.., dv], decay [.., dk
    or 1] (its exponential scales the state), beta [batch, groups or 1, length, 1] (corrects by what
    the state holds already): all of one float dtype, float32 or wider. Gives float[batch, heads,
    length, dv] and the state [batch, groups, dk, dv].
    """
    batch, heads, length, depth = query.shape
    groups, width, dtype = value.shape[1], value.shape[3], query.dtype
    tasks = ex.mul(batch, groups)
    sizes = LinearAttention(
        tasks=ex.prim(tasks),
        groups=ex.prim(groups),
        share=ex.prim(ex.floordiv(heads, groups)),
        length=ex.prim(length),
        depth=ex.prim(depth),
        width=ex.prim(width),
        fadings=ex.prim(1 if decay is None else decay.shape[3]),
        rates=ex.prim(1 if beta is None else beta.shape[1]),
        factor=_factor(scale, depth, dtype),
        dtype=dtype,
    )
    optional = (past, decay, beta)

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        rest = iter(inputs[3:])
        present = [None if value is None else next(rest) for value in optional]
        emit_linear_attention(sizes, Tensors(*inputs[:3], *present, *outputs))

    forms = [
        ((batch, heads, length, width), dtype),
        ((batch, groups, depth, width), dtype),
        ((tasks, width), dtype),
    ]
    values = [query, key, value, *(value for value in optional if value is not None)]
    result, state, _ = loop_programs.program(b, body, forms, *values, name="linear_attention")
    return result, state


def _factor(scale: float | None, depth: Extent, dtype: str) -> Any:
    return (
        tirx.const(scale, dtype)
        if scale
        else tirx.const(1, dtype) / tirx.sqrt(ex.prim(depth).astype(dtype))
    )


def causal_conv(
    b: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    past: Value | None,
    dilation: int = 1,
) -> tuple[Value, Value]:
    """Each channel of x [batch, channels, length] convolved with its own row of weight [channels,
    1, k], whose taps are `dilation` columns apart, and the last (k - 1) * dilation columns.

    past [batch, channels, (k - 1) * dilation] stands before x, zeros by default. Sums are in
    float32 or wider.
    """
    batch, channels, length = x.shape
    taps = weight.shape[2]
    b.require(
        ex.greater_equal(taps, 1), "a causal convolution needs a kernel of at least one column"
    )
    before = b.facts.simplify(ex.mul(ex.sub(taps, 1), dilation))
    dtype = wide(x.dtype)

    def column(tensors: tuple[te.Tensor, ...], n: Any, c: Any, s: Any) -> Any:
        """The column `s` of the past and x together."""
        now = tensors[0]
        if before == 0:
            return now(n, c, s)
        earlier = tensors[-1](n, c, s) if past is not None else tirx.const(0, x.dtype)
        return tirx.if_then_else(s < ex.prim(before), earlier, now(n, c, s - ex.prim(before)))

    def convolve(*tensors: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((ex.prim(0), ex.prim(taps)), name="k")

        def total(n: Any, c: Any, s: Any) -> Any:
            return te.sum(
                column(tensors, n, c, s + k * dilation if dilation > 1 else s + k).astype(dtype)
                * tensors[1](c, ex.prim(0), k).astype(dtype),
                axis=[k],
            )

        return te.compute([ex.prim(e) for e in x.shape], total, name="causal_conv")

    def remember(*tensors: te.Tensor) -> te.Tensor:
        shape = [ex.prim(e) for e in (batch, channels, before)]
        return te.compute(
            shape, lambda n, c, s: column(tensors, n, c, s + ex.prim(length)), name="conv_state"
        )

    inputs = [x, weight, *([] if past is None else [past])]
    result: Value = b.te(convolve, *inputs, name="causal_conv")
    if bias is not None:
        result = ew.add(b, result, layout.unsqueeze(b, ew.cast(b, bias, dtype), [1]))
    return result, b.te(remember, *inputs, name="conv_state")
