"""Kernels' results by definition, in numpy and whatever dtype the arguments have."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array, axis: int = -1) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def layer_norm(x: Array) -> Array:
    """Over the last axis."""
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attention(q: Array, k: Array, v: Array, change: Callable[[Array], Array]) -> Array:
    """softmax(change(q k^T)) v over the last two axes."""
    return softmax(change(q @ np.swapaxes(k, -1, -2))) @ v


def convolution(
    x: Array, w: Array, strides: Any, pads: Any, dilation: Any = (1, 1), groups: int = 1
) -> Array:
    """x [N, C, H, W] with w [O, C/groups, kh, kw]; pads are top, left, bottom, right."""
    n = x.shape[0]
    out, depth, kh, kw = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    oh = (x.shape[2] - (kh - 1) * dilation[0] - 1) // strides[0] + 1
    ow = (x.shape[3] - (kw - 1) * dilation[1] - 1) // strides[1] + 1
    result = np.zeros((n, out, oh, ow))
    for i in range(kh):
        for j in range(kw):
            part = x[:, :, i * dilation[0] :, j * dilation[1] :][
                :, :, : oh * strides[0] : strides[0], : ow * strides[1] : strides[1]
            ]
            grouped = part.reshape(n, groups, depth, oh, ow)
            weights = w[:, :, i, j].reshape(groups, out // groups, depth)
            result += np.einsum("ngdyx,god->ngoyx", grouped, weights).reshape(n, out, oh, ow)
    return result


def windows(x: Array, size: int, stride: int, pad: int, fill: float) -> Array:
    """x [N, H, W, C] as [N, OH, OW, C, size, size]."""
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))[:, ::stride, ::stride]


def double(x: Array) -> Array:
    """x [N, H, W, C] at twice the size, linear between pixel centres."""
    for axis in (1, 2):
        extent = x.shape[axis]
        position = (np.arange(2 * extent) + 0.5) / 2 - 0.5
        low = np.floor(position)
        part = (position - low).reshape([-1 if own == axis else 1 for own in range(x.ndim)])
        first, second = (np.clip(low + step, 0, extent - 1).astype(int) for step in (0, 1))
        x = x.take(first, axis) * (1 - part) + x.take(second, axis) * part
    return x


def lstm(x: Array, r: Array, h: Array, c: Array) -> Array:
    """All outputs [S, B, H] for x [S, B, 4, H], r [H, 4, H], gates in the order input, output,
    forget, candidate.
    """
    every = []
    for step in x:
        i, o, f, g = np.moveaxis(step + np.einsum("bk,kgh->bgh", h, r), 1, 0)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        every.append(h)
    return np.stack(every)


def gru(x: Array, r: Array, h: Array) -> Array:
    """All outputs [S, B, H] for x [S, B, 3, H], r [H, 3, H], gates in the order update, reset,
    candidate.
    """
    every = []
    for step in x:
        z, q = (sigmoid(step[:, gate] + h @ r[:, gate]) for gate in (0, 1))
        h = (1 - z) * np.tanh(step[:, 2] + (q * h) @ r[:, 2]) + z * h
        every.append(h)
    return np.stack(every)
