"""Decoders as onnxruntime-genai's builder exports them: builds verify them as any other model."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from relaxd.contract.options import CompileOptions, StateForm
from tests.compiler.building import build, report
from tests.support.models import genai as gm

DIMS = {
    "batch_size": (1, 3),
    "sequence_length": (1, 20),
    "past_sequence_length": (0, 40),
    "total_sequence_length": (1, 60),
}
STATES = {"fp32": StateForm.LIFTED, "int4": StateForm.PASSED}
BOTH = {"ernie", "gemma", "gpt_oss", "granite", "lfm2"}
FLOATS = BOTH | {"llama_tied", "mistral", "phi", "qwen3"}
PAIRS = [
    (name, precision)
    for name in gm.FORMS
    for precision in STATES
    if name in BOTH or (precision == "fp32") == (name in FLOATS)
]
"""Some in both precisions, the others in one of them each."""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("onnxruntime_genai") is None, reason="onnxruntime-genai is not installed"
    ),
]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    for precision in STATES:
        gm.export(folder, [name for name, one in PAIRS if one == precision], precision)
    return folder


@pytest.mark.parametrize(("name", "precision"), PAIRS)
def test_a_build_is_verified(exports: Path, tmp_path: Path, name: str, precision: str) -> None:
    options = CompileOptions(profile=False, state=STATES[precision])
    model = exports / name / precision / "model.onnx"
    build(tmp_path / "out", model, dims=DIMS, options=options)
    numerics = report(tmp_path / "out", "numerics.json")
    assert numerics["status"] == "executed"
    assert not numerics["left_out"]
