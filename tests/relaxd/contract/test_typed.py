import json

import pytest

from relaxd.contract.bundle.profile import Machine, Profile, TimedPoint
from relaxd.errors import BundleError

POINT = {"label": "opt", "dims": {"n": 4}, "median_ms": 2, "p95_ms": 3.5, "runs": 50}


def test_a_profile_survives_its_json() -> None:
    profile = Profile(
        True,
        machine=Machine("a processor", load_average=(0.5, 0.1, 0.0)),
        points=(TimedPoint(2.0, label="opt", dims={"n": 4}),),
    )
    assert Profile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def test_what_an_older_or_a_newer_compiler_wrote_is_read() -> None:
    profile = Profile.from_json({"measured": True, "points": [POINT], "of_tomorrow": 1})
    assert (profile.points[0].median_ms, profile.points[0].min_ms) == (2.0, None)
    assert profile.machine == Machine()


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ([], "profile.json is not an object"),
        ({"measured": "yes"}, "profile.json.measured is not of type bool"),
        ({"points": 4}, "profile.json.points is not a list"),
        ({"points": [{**POINT, "dims": {"n": 1.5}}]}, r"points\[0\].dims.n is not of type int"),
        ({"points": [{"label": "opt"}]}, r"points\[0\] lacks a field"),
        ({"points": [{**POINT, "dims": 4}]}, r"points\[0\].dims is not an object"),
    ],
)
def test_a_malformed_document_is_refused_by_field(document: object, named: str) -> None:
    with pytest.raises(BundleError, match=named):
        Profile.from_json(document)
