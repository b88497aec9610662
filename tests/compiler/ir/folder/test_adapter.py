"""Adapters that lie in a model's folder, beside models whose weights they were merged into."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.errors import LoadError
from relaxd.contract.model_folder import ADAPTER, ADAPTER_WEIGHTS
from tests.compiler.ir.folder.decoding import compute_logits, open_onnx
from tests.support.models import adapters as am
from tests.support.models import folders as fm

pytestmark = pytest.mark.slow

JOINT = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")


def beside(folders: Path, name: str, folder: Path, *adapter: Any, **settings: Any) -> Path:
    """A copy of the model's folder with an adapter in it."""
    shutil.copytree(folders / name, folder)
    return am.write_peft(folder, *adapter, **settings)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("llama", am.LoraForm(rank=5, alpha=7, rooted=True)),
        ("llama_wide", am.LoraForm(modules=("v_proj", "down_proj"))),
        ("phi3", am.LoraForm(modules=JOINT)),
    ],
)
@pytest.mark.parametrize("dora", [False, True])
def test_an_adapter_in_the_folder_is_merged(
    folders: Path, tmp_path: Path, name: str, form: am.LoraForm, dora: bool
) -> None:
    halves, random = am.draw(folders / name, form, 2), np.random.default_rng(4)
    magnitudes = {
        module: random.uniform(0.5, 2, len(second)).astype(np.float32)
        for module, (_, second) in halves.items()
    }
    adapter = (halves, form, magnitudes if dora else None)
    folder = beside(folders, name, tmp_path / "beside", *adapter, use_dora=dora)
    merged = am.merge(
        folders / name, halves, form, tmp_path / "merged", magnitudes if dora else None
    )
    got, want = (compute_logits(open_onnx(path)) for path in (folder, merged))
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    assert np.abs(want - np.load(folders / name / fm.LOGITS)).max() > 0.1


def test_the_adapter_is_part_of_the_digest(folders: Path, tmp_path: Path) -> None:
    form = am.LoraForm(rank=2)
    digests = {open_onnx(folders / "llama").digest}
    for seed in range(2):
        halves = am.draw(folders / "llama", form, seed)
        digests.add(open_onnx(beside(folders, "llama", tmp_path / str(seed), halves, form)).digest)
    assert len(digests) == 3


def test_adapters_of_other_models_are_refused(folders: Path, tmp_path: Path) -> None:
    form = am.LoraForm(rank=2, modules=("q_proj",))
    halves = am.draw(folders / "llama", form, 0)
    deeper = {name.replace("layers.2", "layers.7"): pair for name, pair in halves.items()}
    with pytest.raises(LoadError, match="no q_proj in layer 7"):
        open_onnx(beside(folders, "llama", tmp_path / "a", deeper, form))
    wider = {name: (first, np.vstack([second] * 2)) for name, (first, second) in halves.items()}
    with pytest.raises(LoadError, match="of another model"):
        open_onnx(beside(folders, "llama", tmp_path / "b", wider, form))
    with pytest.raises(LoadError, match="bias=all") as caught:
        open_onnx(beside(folders, "llama", tmp_path / "c", halves, form, bias="all"))
    assert caught.value.hint
    with pytest.raises(LoadError, match="magnitude for each"):
        open_onnx(beside(folders, "llama", tmp_path / "d", halves, form, use_dora=True))


def test_half_an_adapter_and_an_adapter_alone_are_refused(folders: Path, tmp_path: Path) -> None:
    form = am.LoraForm(rank=2, modules=("q_proj",))
    halves = am.draw(folders / "llama", form, 0)
    folder = beside(folders, "llama", tmp_path / "a", halves, form)
    (folder / ADAPTER_WEIGHTS).unlink()
    with pytest.raises(LoadError, match=f"has {ADAPTER} alone"):
        open_onnx(folder)
    with pytest.raises(LoadError, match="without the model that it changes") as caught:
        open_onnx(am.write_peft(tmp_path / "b", halves, form))
    assert "lora_rank" in str(caught.value.hint)
