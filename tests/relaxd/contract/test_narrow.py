"""Quantized layers of a manifest."""

from typing import Any

import pytest

from relaxd.contract.narrow import QuantizedLayers
from relaxd.contract.options import Precision
from relaxd.errors import BundleError

LAYERS = QuantizedLayers(
    Precision.BFLOAT16, ("first", "second"), {"scores": "neither side is constant"}
)


def test_there_and_back() -> None:
    assert QuantizedLayers.from_json(LAYERS.to_json()) == LAYERS
    beside = QuantizedLayers(Precision.INT8, ("first",), {}, bfloat16=("scores", "values"))
    assert QuantizedLayers.from_json(beside.to_json()) == beside


@pytest.mark.parametrize(
    "change",
    [
        {"form": "float32"},
        {"form": ["bfloat16"]},
        {"layers": {}},
        {"layers": [3]},
        {"kept": []},
        {"kept": {"v": 3}},
        {"bfloat16": [3]},
        {"surprise": 1},
    ],
)
def test_a_malformed_part_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BundleError):
        QuantizedLayers.from_json({**LAYERS.to_json(), **change})
