"""The action key: one digest over everything that determines a build's output."""

from dataclasses import dataclass
from typing import Any

from relaxd.contract.canonical import canonical_bytes, digest_of


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


def differences(have: dict[str, Any], want: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of the parts in which two keys differ, sorted."""
    found = []
    for key in sorted(have.keys() | want.keys()):
        if isinstance(one := have.get(key), dict) and isinstance(other := want.get(key), dict):
            found += differences(one, other, f"{prefix}{key}.")
        elif not (
            key in have and key in want and canonical_bytes(one) == canonical_bytes(want[key])
        ):
            found.append(f"{prefix}{key}")
    return found
