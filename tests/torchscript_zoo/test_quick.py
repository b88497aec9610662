"""The zoo's quick model: control flow that data decides."""

import pytest

from tests.torchscript_zoo.measure import measure
from tests.torchscript_zoo.models import MODELS

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_beside_torch() -> None:
    name = "scripted_lstm"
    result = measure(name)
    assert result.error == ""
    assert [point.sizes for point in result.points] == list(MODELS[name].shapes)
    assert result.is_close
    assert result.unproven == []
