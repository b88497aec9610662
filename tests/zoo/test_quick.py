"""The zoo's quick cases: a packaged model, and graph networks from one of torch's exporters and as
programs with their dims.
"""

import pytest

from tests.zoo.cases import CASES
from tests.zoo.judging import TOLERANCE
from tests.zoo.measure import Outcome, measure

pytestmark = pytest.mark.slow


QUICK = ("magika", "message_passing-torchscript", "message_passing-pt2", "graph_attention-relaxd")


@pytest.mark.parametrize("key", QUICK)
def test_beside_the_reference(key):
    result = measure(CASES[key])
    assert (result.outcome, result.error, result.unproven) == (Outcome.OK, "", [])
    assert list(result.points) == list(CASES[key].points)
    assert max(result.worst) <= TOLERANCE


def test_every_case_has_five_points_within_its_dims_and_both_ends_of_each():
    for case in CASES.values():
        assert len(case.points) == 5, case.key
        for name, declared in case.dims.items():
            low, _, high = declared.partition("%")[0].partition(":")
            values = [point[name] for point in case.points]
            assert {min(values), max(values)} == {int(low), int(high or low)}, (case.key, name)
