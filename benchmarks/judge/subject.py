"""A model whose library is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relaxd.contract.request import CompileRequest


@dataclass(frozen=True)
class Subject:
    """A model and what a request declares about it.

    file: finds the model's file, or makes it in a folder.
    """

    file: Callable[[Path], Path]
    dims: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    consts: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def request(self) -> CompileRequest:
        """Return what a user declares, without a profile."""
        return CompileRequest.of(
            dims=dict(self.dims),
            inputs=dict(self.inputs),
            consts=dict(self.consts),
            shapes=dict(self.shapes),
            options={**self.options, "profile": False},
        )
