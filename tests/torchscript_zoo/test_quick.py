"""The zoo's quick models: control flow that data decides, and a packaged model with its `sr`
argument fixed.
"""

import pytest

from tests.torchscript_zoo.measure import measure
from tests.torchscript_zoo.models import MODELS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["scripted_lstm", "silero_vad_8k"])
def test_beside_torch(name: str) -> None:
    result = measure(name)
    assert result.error == ""
    assert [point.sizes for point in result.points] == list(MODELS[name].shapes)
    assert result.held
    assert result.unproven == []
