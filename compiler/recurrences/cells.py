"""The computation of recurrent layers at each step: kinds of cells and their activations, as ONNX
defines them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T

from compiler.errors import ImportFailed

Activation = Callable[[Any], Any]


@dataclass(frozen=True)
class Cell:
    """A layer's computation at each step; `activations` are f, g, h in ONNX's order, `clip` bounds
    the arguments of f and g.
    """

    kind: str
    activations: tuple[Activation, ...]
    clip: float | None = None
    input_forget: bool = False
    linear_before_reset: bool = False

    @property
    def gates(self) -> int:
        """Gates of a cell: rows of W and R in units of the hidden size."""
        return {"LSTM": 4, "GRU": 3, "RNN": 1}[self.kind]

    @property
    def resets_sum(self) -> bool:
        """True if a GRU's reset applies to its state's part of the sum, not to the state before."""
        return self.kind == "GRU" and self.linear_before_reset

    def act(self, index: int, value: Any) -> Any:
        """Activation `index` of the clipped value."""
        if self.clip is not None:
            value = tirx.max(tirx.min(value, T.float32(self.clip)), T.float32(-self.clip))
        return self.activations[index](value)


@dataclass(frozen=True)
class NamedActivation:
    """An activation by ONNX's name in lower case, with the numbers that it takes."""

    name: str
    alpha: float
    beta: float

    def __call__(self, value: Any) -> Any:
        """The activation of an expression."""
        return _TABLE[self.name](value, T.float32(self.alpha), T.float32(self.beta))


_ALPHAS = {
    "leakyrelu": 0.01,
    "thresholdedrelu": 1.0,
    "hardsigmoid": 0.2,
    "elu": 1.0,
    "scaledtanh": 1.0,
    "affine": 1.0,
}
_BETAS = {"hardsigmoid": 0.5, "scaledtanh": 1.0}
"""Defaults of activations that take these numbers."""

_TABLE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sigmoid": lambda v, a, b: tirx.sigmoid(v),
    "tanh": lambda v, a, b: tirx.tanh(v),
    "relu": lambda v, a, b: tirx.max(T.float32(0), v),
    "affine": lambda v, a, b: v * a + b,
    "leakyrelu": lambda v, a, b: tirx.Select(v < T.float32(0), v * a, v),
    "thresholdedrelu": lambda v, a, b: tirx.Select(v >= a, v, T.float32(0)),
    "scaledtanh": lambda v, a, b: tirx.tanh(v * b) * a,
    "hardsigmoid": lambda v, a, b: tirx.min(T.float32(1), tirx.max(T.float32(0), v * a + b)),
    "elu": lambda v, a, b: tirx.Select(v >= T.float32(0), v, (tirx.exp(v) - T.float32(1)) * a),
    "softsign": lambda v, a, b: v / (T.float32(1) + tirx.abs(v)),
    "softplus": lambda v, a, b: tirx.log(T.float32(1) + tirx.exp(v)),
}


def activation(name: str, alpha: float | None, beta: float | None) -> NamedActivation:
    """An activation by ONNX's name, any case; raises ImportFailed for one that the operator does
    not define.
    """
    key = name.lower()
    if key not in _TABLE:
        raise ImportFailed(
            f"the activation {name!r} is not defined for recurrent layers", reason="attribute"
        )
    return NamedActivation(
        key,
        _ALPHAS.get(key, 0.0) if alpha is None else alpha,
        _BETAS.get(key, 0.0) if beta is None else beta,
    )
