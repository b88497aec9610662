"""A page in headless Chromium pulls real models by digest, checks them, and agrees with ONNX
Runtime at five shapes each.
"""

import pytest

from tests.support.servers import missing
from tools.browser import chromium
from tools.browser.models import check_models

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("minilm", "webgpu"),
        ("minilm", "wasm32-simd"),
        ("ppocr_det", "wasm32-simd"),
        ("ppocr_rec", "wasm32-simd"),
        ("silero_vad", "wasm32-simd"),
    ],
)
def test_a_page_runs_a_real_model(name: str, target: str) -> None:
    program = chromium.find()
    if program is None:
        missing("Chromium", "apt-get install chromium")
    seen = check_models(program, name, target)
    assert (seen.state, seen.wrong) == ("near", ()), seen
    assert len({row[0] for row in seen.rows}) == 5
    assert ("emulated" in seen.facts.get("adapter", "")) == (target == "webgpu")
