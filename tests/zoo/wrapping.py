"""Wraps a transformers model as a module of positional tensors, as both of torch's exporters take one."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn


class Positional(nn.Module):
    """`model` with its arguments named `inputs`, in order; returns the outputs named `outputs`.

    fixed: further arguments.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[str], outputs: Sequence[str], fixed: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.model = model
        self.inputs, self.outputs, self.fixed = tuple(inputs), tuple(outputs), dict(fixed or {})

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        made = self.model(**dict(zip(self.inputs, given, strict=True)), **self.fixed)
        return tuple(getattr(made, name) for name in self.outputs)
