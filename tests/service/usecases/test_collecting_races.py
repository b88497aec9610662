"""Garbage collections without end beside uploads, pulls, pins and builds, interleaved by a seed."""

import pytest

from tests.service import collecting_world

pytestmark = pytest.mark.slow

OPERATIONS = 250


@pytest.mark.parametrize("kind", [pytest.param("local", marks=pytest.mark.long), "remote"])
def test_no_reference_dangles_and_nothing_needed_goes(kind, tmp_path):
    done = collecting_world.run(kind, tmp_path, OPERATIONS, seed=20)
    assert done["collections"] >= 3
    assert done["removed"] > 10
    assert done["expired"] > 20
    assert sum(done[kind] for kind in ("push", "pull", "build", "pin")) > OPERATIONS * 0.8
