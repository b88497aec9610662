"""The failure of a build, in one structured form from the compiler to the wire."""

import dataclasses
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Failure:
    """`code` is stable (`import.unsupported_op`); `stage` is a Stage, or empty
    where no attempt began; `details` holds JSON types; None fields do not apply.
    """

    code: str
    stage: str
    message: str
    pass_name: str | None = None
    node: str | None = None
    op: str | None = None
    hint: str | None = None
    field: str | None = None
    retryable: bool = False
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The wire form, without the fields that do not apply."""
        return {key: value for key, value in asdict(self).items() if value not in (None, {})}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Failure":
        """Inverse of `to_json`."""
        return cls(**document)
