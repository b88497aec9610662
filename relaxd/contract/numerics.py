"""What a bundle's numerics.json says: how the build was verified, how far, and what to mind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxd.errors import BundleError

FILENAME = "numerics.json"
RUN_STATUSES = ("executed", "emulated")
PASSED = "passed"


@dataclass(frozen=True)
class Numerics:
    """The part of numerics.json that clients and the loader read.

    status: `executed`, `emulated`, `compiled_only` or `unverified`; None where a build has no
    report. verified_up_to: the greatest value of each dim at which outputs were compared.
    """

    status: str | None = None
    verdict: str | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    verified_up_to: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, document: Any) -> "Numerics":
        """From the document, or from None where there is none; a field that an older compiler did
        not write takes its default. Raises BundleError for a malformed document.
        """
        if document is None:
            return cls()
        try:
            return cls(
                document.get("status"),
                document.get("verdict"),
                document.get("reason"),
                tuple(str(warning) for warning in document.get("warnings", ())),
                {str(name): int(top) for name, top in document.get("verified_up_to", {}).items()},
            )
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise BundleError(f"{FILENAME} is malformed: {error}") from error

    @property
    def lacking(self) -> str | None:
        """Why the build does not count as verified; None if its library was run and its outputs
        agreed with the reference.
        """
        if self.status is None:
            return "it has no report of a verification"
        why = f": {self.reason}" if self.reason else ""
        if self.status not in RUN_STATUSES:
            return f"it is {self.status}{why}"
        return None if self.verdict == PASSED else f"its verdict is {self.verdict}{why}"
