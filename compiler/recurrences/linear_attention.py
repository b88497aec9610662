"""The loop over tokens of linear attention, whose state is a matrix for each head.

Loop order: heads of keys over the threads, since their states are independent; a task walks all
tokens; a token first changes the state, a few passes over its depth and width, then every query
head that shares the state reads it. The state lies in the result and stays in the cache: 64 kB for
128 by 128 of float32.
"""

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from compiler.tir.exprs import Expr, as_int, const
from compiler.tir.script import spread


@dataclass(frozen=True)
class LinearAttention:
    """Extents of a program of (query [N, G * S, L, D], key [N, G, L, D], value [N, G, L, E],
    [before [N, G, D, E]], [decay [N, G, L, D or 1]], [rate [N, G or 1, L, 1]]) to (result [N,
    G * S, L, E], state [N, G, D, E], scratch [N * G, E]).

    share is S, the query heads of a head of keys; tasks N * G; fadings and rates: extents of the
    decay's last and the rate's second axis; factor: what the result is scaled by.
    """

    tasks: Expr
    groups: Expr
    share: Expr
    length: Expr
    depth: Expr
    width: Expr
    fadings: Expr
    rates: Expr
    factor: Expr
    dtype: str


@dataclass(frozen=True)
class Tensors:
    """The buffers of a program; None for an optional input that is not given."""

    query: Any
    key: Any
    value: Any
    before: Any
    decay: Any
    rate: Any
    result: Any
    state: Any
    change: Any


def emit_linear_attention(sizes: LinearAttention, data: Tensors) -> None:
    """Emit the loops with TVM's script builder."""
    # Each pass over the state has so many operations; there are two to four of them.
    work = sizes.tasks * (sizes.length * (sizes.depth * sizes.width))
    for head in spread(sizes.tasks, work):
        n, g = tirx.floordiv(head, sizes.groups), tirx.floormod(head, sizes.groups)
        _start(sizes, data, n, g)
        # A token's change needs the state after the one before, so the tokens are no tasks.
        with T.serial(sizes.length) as t:
            if data.decay is not None:
                _fade(sizes, data, n, g, t)
            _change(sizes, data, head, n, g, t)
            _add_change(sizes, data, head, n, g, t)
            _read(sizes, data, n, g, t)


def _start(sizes: LinearAttention, data: Tensors, n: Expr, g: Expr) -> None:
    """The state from the one before, or zeros."""
    with T.serial(sizes.depth) as d, T.serial(sizes.width) as e:
        zero = tirx.const(0, sizes.dtype)
        data.state[n, g, d, e] = zero if data.before is None else data.before[n, g, d, e]


def _fade(sizes: LinearAttention, data: Tensors, n: Expr, g: Expr, t: Expr) -> None:
    """The state times the exponential of the token's decay."""
    state = data.state
    with T.serial(sizes.depth) as d, T.serial(sizes.width) as e:
        fading = tirx.exp(data.decay[n, g, t, _within(d, sizes.fadings)])
        state[n, g, d, e] = state[n, g, d, e] * fading


def _change(sizes: LinearAttention, data: Tensors, head: Expr, n: Expr, g: Expr, t: Expr) -> None:
    """The token's value, less what the state holds for its key already where a rate is given (the
    delta rule, Schlag, Irie and Schmidhuber 2021).
    """
    change = data.change
    with T.serial(sizes.width) as e:
        change[head, e] = data.value[n, g, t, e]
    if data.rate is None:
        return
    with T.serial(sizes.depth) as d, T.serial(sizes.width) as e:
        # Depth outside, width inside: a sum for each column, contiguous in the state.
        stored = data.state[n, g, d, e] * data.key[n, g, t, d]
        change[head, e] = change[head, e] - stored
    # The rate scales the whole difference, so it comes after the last element of the depth.
    with T.serial(sizes.width) as e:
        rate = data.rate[n, _within(g, sizes.rates), t, const(0)]
        change[head, e] = change[head, e] * rate


def _add_change(
    sizes: LinearAttention, data: Tensors, head: Expr, n: Expr, g: Expr, t: Expr
) -> None:
    """The state plus the outer product of the token's key and its change."""
    state = data.state
    with T.serial(sizes.depth) as d, T.serial(sizes.width) as e:
        outer = data.key[n, g, t, d] * data.change[head, e]
        state[n, g, d, e] = state[n, g, d, e] + outer


def _read(sizes: LinearAttention, data: Tensors, n: Expr, g: Expr, t: Expr) -> None:
    """The result of every query head that shares the state."""
    result = data.result
    # Grouped queries: the state of a head of keys is in the cache for all of them.
    with T.serial(sizes.share) as s:
        h = g * sizes.share + s
        with T.serial(sizes.width) as e:
            result[n, h, t, e] = tirx.const(0, sizes.dtype)
        # The width is innermost: it is contiguous in the state and in the result.
        with T.serial(sizes.depth) as d, T.serial(sizes.width) as e:
            read = data.query[n, h, t, d] * data.state[n, g, d, e]
            result[n, h, t, e] = result[n, h, t, e] + read * sizes.factor


def _within(index: Expr, extent: Expr) -> Expr:
    """The index, or 0 along an axis of extent 1."""
    known = as_int(extent)
    if known is not None:
        return const(0) if known == 1 else index
    return tirx.Select(tirx.EQ(extent, const(1)), const(0), index)
