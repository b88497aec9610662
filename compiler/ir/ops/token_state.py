"""Layers whose state goes from token to token: linear attention, and causal convolution of each
channel.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent
from compiler.ir.ops import elementwise as ew
from compiler.ir.ops import layout, loops
from compiler.ir.ops.nn_norm import wide
from compiler.ir.values import Tensor, Value


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
    groups, width = value.shape[1], value.shape[3]
    dtype = query.dtype
    values = [query, key, value, *(x for x in (past, decay, beta) if x is not None)]
    share = ex.floordiv(heads, groups)
    factor = _factor(scale, depth, dtype)
    fadings = decay.shape[3] if decay is not None else 1
    rates = beta.shape[1] if beta is not None else 1

    def body(inputs: list[Any], outputs: list[Any]) -> None:
        q, k, v, *rest = inputs
        result, state, change = outputs
        before = rest.pop(0) if past is not None else None
        fading = rest.pop(0) if decay is not None else None
        rate = rest.pop(0) if beta is not None else None

        def head(at: Any) -> None:
            n, g = tirx.floordiv(at, ex.prim(groups)), tirx.floormod(at, ex.prim(groups))
            with loops.serial(depth) as d, loops.serial(width) as e:
                state[n, g, d, e] = (
                    before[n, g, d, e] if before is not None else tirx.const(0, dtype)
                )
            with loops.serial(length) as t:
                if fading is not None:
                    with loops.serial(depth) as d, loops.serial(width) as e:
                        state[n, g, d, e] = state[n, g, d, e] * tirx.exp(
                            fading[n, g, t, _within(d, fadings)]
                        )
                with loops.serial(width) as e:
                    change[at, e] = v[n, g, t, e]
                if rate is not None:
                    with loops.serial(depth) as d, loops.serial(width) as e:
                        change[at, e] = change[at, e] - state[n, g, d, e] * k[n, g, t, d]
                    with loops.serial(width) as e:
                        change[at, e] = change[at, e] * rate[n, _within(g, rates), t, ex.prim(0)]
                with loops.serial(depth) as d, loops.serial(width) as e:
                    state[n, g, d, e] = state[n, g, d, e] + k[n, g, t, d] * change[at, e]
                with loops.serial(share) as s:
                    h = g * ex.prim(share) + s
                    with loops.serial(width) as e:
                        result[n, h, t, e] = tirx.const(0, dtype)
                    with loops.serial(depth) as d, loops.serial(width) as e:
                        result[n, h, t, e] = (
                            result[n, h, t, e] + q[n, h, t, d] * state[n, g, d, e] * factor
                        )

        loops.spread(ex.mul(batch, groups), head, ex.mul(length, ex.mul(depth, width)))

    forms = [
        ((batch, heads, length, width), dtype),
        ((batch, groups, depth, width), dtype),
        ((ex.mul(batch, groups), width), dtype),
    ]
    result, state, _ = loops.program(b, body, forms, *values, name="linear_attention")
    return result, state


def _factor(scale: float | None, depth: Extent, dtype: str) -> Any:
    return (
        tirx.const(scale, dtype)
        if scale
        else tirx.const(1, dtype) / tirx.sqrt(ex.prim(depth).astype(dtype))
    )


def _within(index: Any, extent: Extent) -> Any:
    """The index, or 0 along an axis of extent 1."""
    if extent == 1:
        return ex.prim(0)
    return (
        index
        if isinstance(extent, int)
        else tirx.Select(tirx.EQ(ex.prim(extent), ex.prim(1)), ex.prim(0), index)
    )


def causal_conv(
    b: Builder, x: Value, weight: Value, bias: Value | None, past: Value | None
) -> tuple[Value, Value]:
    """Each channel of x [batch, channels, length] convolved with its own row of weight [channels,
    1, k], and the last k - 1 columns.

    past [batch, channels, k - 1] stands before x, zeros by default. Sums are in float32 or wider.
    """
    batch, channels, length = x.shape
    taps = weight.shape[2]
    b.require(
        ex.greater_equal(taps, 1), "a causal convolution needs a kernel of at least one column"
    )
    before = b.facts.simplify(ex.sub(taps, 1))
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
                column(tensors, n, c, s + k).astype(dtype)
                * tensors[1](c, ex.prim(0), k).astype(dtype),
                axis=[k],
            )

        return te.compute([ex.prim(e) for e in x.shape], total, name="causal_conv")

    def remember(*tensors: te.Tensor) -> te.Tensor:
        shape = [ex.prim(e) for e in (batch, channels, before)]
        return te.compute(
            shape, lambda n, c, s: column(tensors, n, c, s + ex.prim(length)), name="conv_state"
        )

    given = [x, weight, *([] if past is None else [past])]
    result: Value = b.te(convolve, *given, name="causal_conv")
    if bias is not None:
        result = ew.add(b, result, layout.unsqueeze(b, ew.cast(b, bias, dtype), [1]))
    return result, b.te(remember, *given, name="conv_state")
