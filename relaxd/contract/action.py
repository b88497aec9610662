"""The action key: one digest over everything that determines a build's output."""

from dataclasses import dataclass
from typing import Any

from relaxd.contract.canonical import canonical_bytes, digest_of

TOOLCHAIN = {
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "linker": "ziglang",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "numpy": "numpy",
    "torch": "torch",
}
"""The packages whose versions are parts of an action key, by the part's name."""


@dataclass(frozen=True)
class ActionKey:
    """`parts` is a JSON document of named parts: model, request, target, options, pipeline,
    toolchain.
    """

    parts: dict[str, Any]

    @property
    def digest(self) -> str:
        """sha256 over the canonical bytes of the parts."""
        return digest_of(canonical_bytes(self.parts))

    def to_json(self) -> dict[str, Any]:
        """The manifest's `action_key`."""
        return {"digest": self.digest, "parts": self.parts}


@dataclass(frozen=True)
class Difference:
    """A part in which two keys differ, by its dotted name; `have` or `want` is None where that key
    lacks it.
    """

    part: str
    have: Any
    want: Any


def differences(have: dict[str, Any], want: dict[str, Any], prefix: str = "") -> list[Difference]:
    """The parts in which two keys differ, sorted by name."""
    different = []
    for key in sorted(have.keys() | want.keys()):
        one, other = have.get(key), want.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            different += differences(one, other, f"{prefix}{key}.")
        elif not (key in have and key in want and canonical_bytes(one) == canonical_bytes(other)):
            different.append(Difference(f"{prefix}{key}", one, other))
    return different
