"""Weights in fewer bits, as the manifest states them."""

from typing import Any

import pytest

from relaxd.contract.bundle.weights import StoredWeight, StoredWeights
from relaxd.contract.options import Calibration, WeightForm
from relaxd.errors import BundleError

STORED = StoredWeights(
    WeightForm.INT4,
    32,
    {"w": StoredWeight(WeightForm.INT4, (64, 300), 12000)},
    {"v": "other operators read it too"},
)


CALIBRATED = StoredWeights(
    WeightForm.INT8,
    32,
    {
        "w": StoredWeight(WeightForm.INT8, (64, 300), 21600),
        "t": StoredWeight(WeightForm.INT8, (300, 64), 21600, "rows of it are read"),
    },
    {},
    Calibration.GPTQ,
)


def test_there_and_back() -> None:
    assert StoredWeights.from_json(CALIBRATED.to_json()) == CALIBRATED
    assert "calibration" not in STORED.to_json()
    assert set(STORED.to_json()["layers"]["w"]) == {"form", "shape", "bytes"}
    assert StoredWeights.from_json(STORED.to_json()) == STORED
    assert STORED.layers["w"].before == 64 * 300 * 4


@pytest.mark.parametrize(
    "change",
    [
        {"form": "float32"},
        {"form": ["int4"]},
        {"block": -1},
        {"block": True},
        {"layers": []},
        {"layers": {"w": {"form": "int4", "shape": [1], "bytes": 1, "more": 2}}},
        {"layers": {"w": {"form": "int5", "shape": [1], "bytes": 1}}},
        {"layers": {"w": {"form": "int4", "shape": [1] * 33, "bytes": 1}}},
        {"layers": {"w": {"form": "int4", "shape": ["n"], "bytes": 1}}},
        {"layers": {"w": {"form": "int4", "shape": [1], "bytes": 1, "nearest": 1}}},
        {"calibration": "awq"},
        {"kept": {"v": 3}},
        {"surprise": 1},
    ],
)
def test_a_malformed_part_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BundleError, match="malformed"):
        StoredWeights.from_json({**STORED.to_json(), **change})
