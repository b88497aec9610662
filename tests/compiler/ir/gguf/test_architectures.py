"""GGUF files of each architecture: their graph in ONNX Runtime beside torch."""

from pathlib import Path

import numpy as np
import pytest

from compiler.errors import LoadError
from compiler.ir.files.model_file import open_model
from compiler.ir.gguf.architectures import ARCHITECTURES, architecture_of, design_of
from compiler.ir.gguf.metadata import Metadata
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


VALUES = ["x", "yarn", -1, 0, 1, 7, 1 << 23, 2**63, 1e-320, 1e-29, 1e29, 1e308, float("nan"), True]
"""In the place of any setting."""


@pytest.mark.parametrize("name", ["llama_yarn", "granite", "gemma2_own", "gemma3_deep", "phi3"])
def test_any_setting_is_read_or_refused(folders: Path, name: str) -> None:
    _, metadata = convert(folders / name)
    arch = metadata["general.architecture"]
    scaling = {f"{arch}.rope.scaling.{each}": 1.0 for each in ("yarn_beta_fast", "attn_factor")}
    declared = metadata | scaling
    refused = read = 0
    for key in declared:
        for value in VALUES:
            settings = Metadata(declared | {key: value})
            try:
                with np.errstate(all="raise", under="ignore"):
                    design = design_of(settings, architecture_of(settings), fm.WORDS, None)
                    rotations = [layer.rotation for layer in design.layers[:1] if layer.rotation]
                    tables = [table for one in rotations for table in one.tables(64)]
            except LoadError:
                refused += 1
            else:
                read += 1
                assert all(np.isfinite(table).all() for table in tables), (key, value)
                scales = (design.score_scale, design.table_scale, design.logit_scale)
                assert all(np.isfinite(np.float32(scale)) for scale in scales if scale is not None)
    assert refused > 0
    assert read > 0
