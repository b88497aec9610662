"""Random draws of a model, described for the compiled program and for the reference, which gets
the same numbers.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from relaxd.contract.dims.tensors import TensorSpec

SEED = TensorSpec("relaxd.seed", "int64", (), default=0)
"""The last input of a model that draws numbers."""


class Law(StrEnum):
    """A number's distribution: even in [start, start + spread), or around `start` with the standard
    deviation `spread`.
    """

    UNIFORM = "uniform"
    NORMAL = "normal"


@dataclass(frozen=True)
class Draw:
    """The numbers of one node: which of the seed's 2**64 streams they come from, and their law."""

    stream: int
    law: Law
    dtype: str
    start: float = 0.0
    spread: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """The form in a task's spec."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Draw:
        """Inverse of `to_json`."""
        return cls(**{**document, "law": Law(document["law"])})


def stream_of(label: str) -> int:
    """The stream of a node with this label: 64 bits, so that two labels share one in no model."""
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "little")
