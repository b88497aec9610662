"""Decoders with adapters beside merged models, by ONNX Runtime: every format of a base and of an
adapter.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.ir.decoders.adapters import AdapterForm
from compiler.ir.files.model_file import LoadedModel, open_model
from compiler.ir.gguf.architectures import ARCHITECTURES
from relaxd.contract.adapter_files.adapter import Shape, fit
from relaxd.contract.adapter_files.gguf import NEIGHBOURS
from relaxd.contract.adapter_files.reading import read_adapter
from relaxd.contract.options import MODULES
from tests.compiler.ir.folder.decoding import compute_logits
from tests.compiler.ir.onnx.running import session_of
from tests.support.models import adapters as am
from tests.support.models import folders as fm
from tests.support.models import gguf_files
from tests.support.models.gguf_conversion import convert

RANK = 16
NAMES = ("llama", "phi3", "qwen3", "gemma2_own", "granite", "olmo2")
JOINT = {"phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bases")
    fm.write(folder, NAMES)
    return folder


def form_of(name: str, **settings: Any) -> am.LoraForm:
    return am.LoraForm(modules=JOINT.get(name, MODULES), **settings)


def load(base: Path, *modules: str) -> LoadedModel:
    loaded = open_model(base, AdapterForm(RANK, frozenset(modules or MODULES)))
    assert isinstance(loaded, LoadedModel)
    return loaded


def adapted_logits(model: LoadedModel, adapters: list[Path], numbers: list[int]) -> np.ndarray:
    """[entries, tokens, words]: the logits of the same tokens with the adapters of these numbers,
    by ONNX Runtime.
    """
    session: Any = session_of(model.proto)
    feed = {entry.name: zeros(entry.shape, len(adapters)) for entry in session.get_inputs()}
    assert model.adapters is not None
    modules = {(module.layer, module.name): module for module in model.adapters.modules}
    widths = {name: feed[module.up].shape[2] for (_, name), module in modules.items()}
    described = model.adapters
    shape = Shape(widths, described.heads, described.groups, described.neighbours)
    for slot, path in enumerate(adapters):
        for key, change in fit(read_adapter(path), shape).items():
            rank = len(change.up)
            feed[modules[key].down][slot, :rank] = change.down.T
            feed[modules[key].up][slot, :rank] = change.up / np.float32(modules[key].scale)
            feed[described.ranks][slot, list(modules).index(key)] = rank
    count = len(numbers)
    for entry in session.get_inputs():
        if entry.name.startswith("past"):
            _, groups, _, size = entry.shape
            feed[entry.name] = np.zeros((count, groups, 0, size), np.float32)
    feed["input_ids"] = np.array([fm.TOKENS] * count)
    feed["attention_mask"] = np.ones_like(feed["input_ids"])
    feed["adapter"] = np.array(numbers, np.int32)
    feed[described.ranks] = feed[described.ranks].astype(np.int32)
    logits: np.ndarray = session.run(["logits"], feed)[0]
    return logits


def zeros(shape: list[Any], adapters: int) -> np.ndarray:
    sizes = [adapters if axis == "adapters" else axis for axis in shape]
    return np.zeros([size if isinstance(size, int) else 0 for size in sizes], np.float32)


def merged_logits(base: Path, halves: Any, form: am.LoraForm, folder: Path) -> np.ndarray:
    loaded = open_model(am.merge(base, halves, form, folder))
    assert isinstance(loaded, LoadedModel)
    return compute_logits(loaded)


def assert_alike(got: np.ndarray, want: np.ndarray, base: np.ndarray) -> None:
    assert np.abs(got - want).max() < 1e-4 * max(1, np.abs(want).max())
    assert np.abs(want - base).max() > 0.1, "the adapter changes nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_adapters_are_as_merged_whatever_the_formats(
    bases: Path, tmp_path: Path, name: str
) -> None:
    form, base = form_of(name), bases / name
    halves = am.draw(base, form, 5)
    want = merged_logits(base, halves, form, tmp_path / "merged")
    plain = np.load(base / fm.LOGITS)
    file = tmp_path / "base.gguf"
    gguf_files.write(file, *convert(base))
    heads = (fm.HEADS, fm.GROUPS) if name in NEIGHBOURS else None
    adapters = [
        am.write_peft(tmp_path / "peft", halves, form),
        am.write_gguf(tmp_path / "adapter.gguf", halves, form, heads),
    ]
    for model in load(base), load(file):
        none, *results = adapted_logits(model, adapters, [0, 1, 2])
        for got in results:
            assert_alike(got, want, plain)
        assert np.abs(none - plain).max() < 1e-4 * np.abs(plain).max()


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        am.LoraForm(rank=4, alpha=3, rooted=True, modules=("q_proj", "v_proj")),
        am.LoraForm(rank=16, modules=am.FORWARD, alphas={"up_proj": 1, "1.mlp.down_proj": 40}),
        am.LoraForm(rank=2, ranks={"q_proj": 7, "model.layers.2.self_attn.k_proj": 1}),
    ],
)
def test_settings_of_peft(bases: Path, tmp_path: Path, form: am.LoraForm) -> None:
    base = bases / "llama"
    halves = am.draw(base, form, 3)
    want = merged_logits(base, halves, form, tmp_path / "merged")
    adapter = am.write_peft(tmp_path / "adapter", halves, form)
    (got,) = adapted_logits(load(base), [adapter], [1])
    assert_alike(got, want, np.load(base / fm.LOGITS))


@pytest.mark.slow
def test_some_matmuls_alone_have_inputs(bases: Path) -> None:
    model = load(bases / "llama", "v_proj", "q_proj")
    names = [info.name for info in model.proto.graph.input if info.name.endswith((".down", ".up"))]
    assert len(names) == 2 * 2 * fm.LAYERS
    assert {name.split(".")[2] for name in names} == {"q_proj", "v_proj"}


def test_both_sides_know_the_same_order_of_rows() -> None:
    assert {name for name, each in ARCHITECTURES.items() if each.neighbours} == NEIGHBOURS
