from typing import Any

import pytest

from relaxd.contract.bundle.numerics import Numerics
from relaxd.errors import BundleError


def test_an_older_report_takes_defaults() -> None:
    assert Numerics.from_json(None) == Numerics()
    older = Numerics.from_json({"verdict": "passed", "status": "executed", "outputs": []})
    assert (older.warnings, older.verified_up_to) == ((), {})


def test_a_report_of_today() -> None:
    read = Numerics.from_json(
        {"verdict": "passed", "status": "executed", "warnings": ["w"], "verified_up_to": {"n": 8}}
    )
    assert (read.warnings, read.verified_up_to, read.lacking) == (("w",), {"n": 8}, None)


@pytest.mark.parametrize(
    "document", [[], "passed", {"verified_up_to": {"n": "many"}}, {"warnings": 3}]
)
def test_a_malformed_report_is_an_error(document: Any) -> None:
    with pytest.raises(BundleError, match=r"numerics\.json is malformed"):
        Numerics.from_json(document)


@pytest.mark.parametrize(
    ("report", "lacking"),
    [
        (Numerics("executed", "passed"), None),
        (Numerics("emulated", "passed"), None),
        (Numerics(), "it has no report of a verification"),
        (Numerics("unverified", "not_run", "options.verify is off"), "options.verify is off"),
        (Numerics("compiled_only", "not_run", "no such processor"), "it is compiled_only: no such"),
        (Numerics("executed", "reference_inexact"), None),
        (Numerics("executed", "statistical"), None),
        (Numerics("executed", "tolerated"), None),
        (Numerics("executed", "inconclusive"), "its verdict is inconclusive"),
        (Numerics("executed", "failed"), "its verdict is failed"),
    ],
)
def test_what_a_build_lacks_to_be_verified(report: Numerics, lacking: str | None) -> None:
    assert report.lacking is None if lacking is None else lacking in str(report.lacking)
