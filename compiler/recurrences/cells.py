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


def activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """An activation by ONNX's name, any case; raises ImportFailed for one that the operator does
    not define.
    """
    f = T.float32
    a = (
        {
            "leakyrelu": 0.01,
            "thresholdedrelu": 1.0,
            "hardsigmoid": 0.2,
            "elu": 1.0,
            "scaledtanh": 1.0,
            "affine": 1.0,
        }.get(name.lower(), 0.0)
        if alpha is None
        else alpha
    )
    c = {"hardsigmoid": 0.5, "scaledtanh": 1.0}.get(name.lower(), 0.0) if beta is None else beta
    table: dict[str, Activation] = {
        "sigmoid": tirx.sigmoid,
        "tanh": tirx.tanh,
        "relu": lambda v: tirx.max(f(0), v),
        "affine": lambda v: v * f(a) + f(c),
        "leakyrelu": lambda v: tirx.Select(v < f(0), v * f(a), v),
        "thresholdedrelu": lambda v: tirx.Select(v >= f(a), v, f(0)),
        "scaledtanh": lambda v: tirx.tanh(v * f(c)) * f(a),
        "hardsigmoid": lambda v: tirx.min(f(1), tirx.max(f(0), v * f(a) + f(c))),
        "elu": lambda v: tirx.Select(v >= f(0), v, (tirx.exp(v) - f(1)) * f(a)),
        "softsign": lambda v: v / (f(1) + tirx.abs(v)),
        "softplus": lambda v: tirx.log(f(1) + tirx.exp(v)),
    }
    if name.lower() not in table:
        raise ImportFailed(
            f"the activation {name!r} is not defined for recurrent layers", reason="attribute"
        )
    return table[name.lower()]
