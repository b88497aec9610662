"""A bundle's numerics.json: how the build was verified, how far, and warnings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from relaxd.errors import BundleError

FILENAME = "numerics.json"
RUN_STATUSES = ("executed", "emulated")


class Verdict(StrEnum):
    """The result of a verification, for one output or all.

    passed: every element agrees with the reference within a tolerance of at most a tenth of the
    output's spread. reference_inexact: it departs from the reference, and is as near to float64 as
    a tolerance asks or the reference is. statistical: roundings move the reference too far to
    compare element by element, and the error of all elements is that of equal roundings.
    tolerated: it departs by more than a tenth of its spread, within the request's own tolerance.
    inconclusive: nothing is known to be wrong, and nothing is shown. not_run: nothing was compared.
    """

    PASSED = "passed"
    REFERENCE_INEXACT = "reference_inexact"
    STATISTICAL = "statistical"
    TOLERATED = "tolerated"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed"
    NOT_RUN = "not_run"


AGREED = (
    Verdict.PASSED,
    Verdict.REFERENCE_INEXACT,
    Verdict.STATISTICAL,
    Verdict.TOLERATED,
)
"""The verdicts of outputs that agree, from the most to the least that they say."""


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
        return None if self.verdict in AGREED else f"its verdict is {self.verdict}{why}"
