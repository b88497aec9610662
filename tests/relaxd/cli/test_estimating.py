import json
from pathlib import Path
from typing import Any

import pytest

from tests.relaxd.contract.bundle.test_estimate import COST


@pytest.fixture
def bundle(measured: Path) -> Path:
    profile = json.loads((measured / "profile.json").read_text())
    point = {"label": "grid-1", "dims": {"n": 8}, "median_ms": 2.0}
    terms = [{"ms": 0.5, "dims": {}}, {"ms": 0.25, "dims": {"n": 1}}]
    cost = {**COST, "terms": terms, "low": {"n": 1}, "high": {"n": 8}}
    profile |= {"cost": cost, "points": [*profile["points"], point]}
    (measured / "profile.json").write_text(json.dumps(profile))
    return measured


def test_an_estimate_comes_with_its_error_and_machine(relaxd: Any, bundle: Path) -> None:
    ended = relaxd("estimate", str(bundle), "--dim", "n=5")
    assert ended.code == 0
    first, second = ended.out.splitlines()
    assert first == "1.75 ms at n=5 on A Processor, 2 threads, load 0.5"
    assert second.startswith("error 2.0% at the median and 7.0% at most, of 12 measured points")


def test_the_document(relaxd: Any, bundle: Path) -> None:
    document = relaxd("estimate", str(bundle), "--dim", "n=5", "--json").json
    assert (document["ms"], document["error_max"], document["dims"]) == (1.75, 0.07, {"n": 5})
    assert document["machine"]["processor"] == "A Processor"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dim", "n=9"], "n=9 is outside of what was measured, 1 to 8"),
        ([], "'n' has no value"),
        (["--dim", "n=2.5"], "cannot read --dim"),
        (["--dim", "n=1", "--dim", "n=2"], "given twice"),
    ],
)
def test_what_cannot_be_told_is_a_mistake_of_the_caller(
    relaxd: Any, bundle: Path, arguments: list[str], message: str
) -> None:
    ended = relaxd("estimate", str(bundle), *arguments)
    assert ended.code == 2
    assert message in " ".join(ended.err.split())


def test_without_a_grid_the_hint_says_how_to_get_one(relaxd: Any, measured: Path) -> None:
    ended = relaxd("estimate", str(measured), "--dim", "n=4", "--json")
    assert ended.code == 2
    error = ended.json["error"]
    assert error["code"] == "estimate.refused"
    assert "--grid auto" in error["hint"]


def test_the_newest_profile_with_a_cost_model_counts(relaxd: Any, bundle: Path) -> None:
    newer = json.loads((bundle / "profile.json").read_text())
    newer |= {"cost": None, "measured_at": "2027-01-02T00:00:00+00:00"}
    (bundle / "profile-0123456789ab.json").write_text(json.dumps(newer))
    assert relaxd("estimate", str(bundle), "--dim", "n=5").code == 0
