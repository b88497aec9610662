"""GGUF files of each architecture: their graph in ONNX Runtime beside torch."""

from pathlib import Path

import numpy as np
import pytest

from compiler.errors import LoadError
from compiler.ir.files.model_file import open_model
from compiler.ir.gguf.architectures import ARCHITECTURES
from tests.compiler.ir.folder.decoding import compute_logits, open_onnx
from tests.support.models import folders as fm
from tests.support.models.gguf_conversion import KINDS, convert
from tests.support.models.gguf_files import F16, F32, Q8_0, write

NAMES = (
    "llama",
    "llama_tied",
    "llama_linear",
    "llama3",
    "llama_yarn",
    "mistral",
    "qwen2",
    "qwen3",
    "smollm3_deep",
    "granite",
    "olmo2",
    "phi3",
    "gemma",
    "gemma2_own",
    "gemma3_deep",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folders")
    fm.write(folder, (*NAMES, "phi3_wide"))
    return folder


def test_each_architecture_is_here() -> None:
    assert set(KINDS.values()) == set(ARCHITECTURES)


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_is_the_decoder(folders: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.gguf"
    write(path, *convert(folders / name))
    want = np.load(folders / name / fm.LOGITS)
    got = compute_logits(open_onnx(path))
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()


@pytest.mark.parametrize("kind", [F16, Q8_0])
def test_parts_of_one_matrix_in_blocks(folders: Path, tmp_path: Path, kind: int) -> None:
    stored, metadata = convert(folders / "phi3_wide", kind)
    stored_values = write(tmp_path / "blocks.gguf", stored, metadata)
    plain = {name: (F32, values.astype(np.float32)) for name, values in stored_values.items()}
    write(tmp_path / "plain.gguf", plain, metadata)
    want = compute_logits(open_onnx(tmp_path / "plain.gguf"))
    got = compute_logits(open_onnx(tmp_path / "blocks.gguf"))
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()


def test_a_tensor_that_the_architecture_does_not_have_is_refused(
    folders: Path, tmp_path: Path
) -> None:
    stored, metadata = convert(folders / "qwen2")
    stored["blk.0.attn_sinks.weight"] = (F32, np.zeros(4, np.float32))
    write(tmp_path / "model.gguf", stored, metadata)
    with pytest.raises(LoadError, match="attn_sinks") as caught:
        open_model(tmp_path / "model.gguf")
    assert caught.value.code == "load.gguf_architecture"


@pytest.mark.parametrize("rates", [[1.0] * 7, [1.0] * 7 + [0.0], [1.0] * 7 + [float("nan")]])
def test_rates_that_divide_nothing_are_refused(
    folders: Path, tmp_path: Path, rates: list[float]
) -> None:
    stored, metadata = convert(folders / "llama3")
    stored["rope_freqs.weight"] = (F32, np.array(rates, np.float32))
    write(tmp_path / "model.gguf", stored, metadata)
    with pytest.raises(LoadError) as caught:
        open_model(tmp_path / "model.gguf")
    assert caught.value.code == "load.gguf"
