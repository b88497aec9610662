"""Folders of sentence-transformers: the encoder and its modules beside numpy in float64."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import relaxd
from compiler.errors import LoadError
from compiler.ir.files.model_file import open_model
from relaxd.contract.options import CompileOptions
from tests.compiler.building import build, report
from tests.compiler.ir.folder.decoding import open_onnx
from tests.compiler.ir.onnx.running import session_of
from tests.support.models import encoder_folders as em

OLD, NEW = "sentence_transformers.models.", "sentence_transformers.base.modules."
COLUMNS = 24
DENSE = {
    "in_features": em.WIDTH,
    "out_features": COLUMNS,
    "bias": True,
    "activation_function": "torch.nn.modules.activation.Tanh",
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `bert`, and what torch gives beside it."""
    folder = tmp_path_factory.mktemp("sentences")
    em.write(folder, ["bert"])
    return folder


def write_sentences(
    bert: Path, folder: Path, pooling: dict[str, Any] | None, *kinds: str, prefix: str = OLD
) -> Path:
    """A folder of sentence-transformers with these modules behind the encoder and the pooling."""
    shutil.copytree(bert / "bert", folder)
    names = ["Transformer", *(["Pooling"] if pooling is not None else []), *kinds]
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": prefix + name}
        for i, name in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for i, name in enumerate(names[1:], 1):
        (folder / f"{i}_{name}").mkdir()
        config = {"Pooling": pooling, "Dense": DENSE}.get(name)
        if config is not None:
            (folder / f"{i}_{name}" / "config.json").write_text(json.dumps(config))
        if name == "Dense":
            generator = np.random.default_rng(5)
            tensors: dict[str, Any] = {
                "linear.weight": generator.normal(size=(COLUMNS, em.WIDTH)).astype(np.float32) / 8,
                "linear.bias": generator.normal(size=COLUMNS).astype(np.float32),
            }
            save_file(tensors, folder / f"{i}_{name}" / "model.safetensors")
    return folder


def embed(folder: Path, inputs: dict[str, Any]) -> Any:
    """The sentence embedding by the folder's graph."""
    session: Any = session_of(open_onnx(folder).proto)
    return session.run(["sentence_embedding"], inputs)[0]


def first(x: Any, mask: Any) -> Any:
    return x[np.arange(len(x)), mask.argmax(1)]


def last(x: Any, mask: Any) -> Any:
    length = mask.shape[1]
    return x[np.arange(len(x)), length - 1 - mask[:, ::-1].argmax(1)]


def mean(x: Any, mask: Any) -> Any:
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)


def mean_by_root(x: Any, mask: Any) -> Any:
    return (x * mask[..., None]).sum(1) / np.sqrt(mask.sum(1, keepdims=True))


def largest(x: Any, mask: Any) -> Any:
    return np.where(mask[..., None] > 0, x, -np.inf).max(1)


def mean_by_position(x: Any, mask: Any) -> Any:
    weights = mask * (np.arange(mask.shape[1]) + 1 - mask.argmax(1)[:, None])
    return (x * weights[..., None]).sum(1) / weights.sum(1, keepdims=True)


POOLS: dict[str, Callable[[Any, Any], Any]] = {
    "cls": first,
    "max": largest,
    "mean": mean,
    "mean_sqrt_len_tokens": mean_by_root,
    "weightedmean": mean_by_position,
    "lasttoken": last,
}


@pytest.mark.parametrize("mode", POOLS)
def test_every_pooling_with_padding_behind_and_before(
    bert: Path, tmp_path: Path, mode: str
) -> None:
    folder = write_sentences(bert, tmp_path / "s", {"pooling_mode": mode}, prefix=NEW)
    session: Any = session_of(open_onnx(folder).proto)
    for size in em.SIZES:
        inputs, want = em.load(bert, "bert", size)
        expected = POOLS[mode](want["last_hidden_state"], inputs["attention_mask"])
        got = session.run(["sentence_embedding"], inputs)[0]
        assert np.abs(got - expected).max() < 1e-4 * np.abs(expected).max()
        before = {key: np.ascontiguousarray(value[:, ::-1]) for key, value in inputs.items()}
        embedding, tokens = session.run(None, before)
        expected = POOLS[mode](tokens.astype(np.float64), before["attention_mask"])
        assert np.abs(embedding - expected).max() < 1e-5 * np.abs(expected).max()


def test_modules_in_their_order(bert: Path, tmp_path: Path) -> None:
    pooling = {"word_embedding_dimension": em.WIDTH, "pooling_mode_mean_tokens": True}
    folder = write_sentences(bert, tmp_path / "s", pooling, "Dense", "Normalize")
    dense = load_file(folder / "2_Dense" / "model.safetensors")
    for size in em.SIZES:
        inputs, want = em.load(bert, "bert", size)
        x = mean(want["last_hidden_state"].astype(np.float64), inputs["attention_mask"])
        x = np.tanh(x @ dense["linear.weight"].T + dense["linear.bias"])
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        assert np.abs(embed(folder, inputs) - x).max() < 1e-5


def test_poolings_side_by_side_in_the_order_of_old_settings(bert: Path, tmp_path: Path) -> None:
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    folder = write_sentences(bert, tmp_path / "s", pooling)
    inputs, want = em.load(bert, "bert", (2, 7))
    x, mask = want["last_hidden_state"], inputs["attention_mask"]
    expected = np.concatenate([first(x, mask), mean(x, mask)], 1)
    assert np.abs(embed(folder, inputs) - expected).max() < 1e-4


def test_a_cross_encoder_keeps_its_head(bert: Path, tmp_path: Path) -> None:
    folder = write_sentences(bert, tmp_path / "s", None)
    outputs = open_onnx(folder).proto.graph.output
    assert [output.name for output in outputs] == ["last_hidden_state", "pooler_output"]


def change_modules(folder: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Rewrite modules.json."""
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(change(modules)))


@pytest.mark.parametrize(
    ("pooling", "kinds", "code", "message"),
    [
        ({"pooling_mode": "mean", "include_prompt": False}, (), "architecture", "include_prompt"),
        ({"pooling_mode": "median"}, (), "architecture", "median"),
        ({"pooling_mode": []}, (), "architecture", "pooling_mode"),
        ({"pooling_mode": "mean"}, ("LSTM",), "", "no 2_LSTM/config.json"),
        (None, ("Dense",), "architecture", "without a Pooling"),
        ({"module_input_name": "token_embeddings"}, (), "architecture", "module_input_name"),
        ({"pooling_mode_cls_token": "yes"}, (), "", "pooling_mode_cls_token"),
    ],
)
def test_other_modules_are_refused(
    bert: Path,
    tmp_path: Path,
    pooling: dict[str, Any] | None,
    kinds: tuple[str, ...],
    code: str,
    message: str,
) -> None:
    folder = write_sentences(bert, tmp_path / "s", pooling, *kinds)
    with pytest.raises(LoadError, match=message) as caught:
        open_model(folder)
    assert caught.value.code == f"load.folder{'_' * bool(code)}{code}"


@pytest.mark.parametrize(
    "change",
    [
        lambda modules: [{**modules[1], "path": "../elsewhere"}],
        lambda modules: [{**modules[1], "path": "/etc"}],
        lambda modules: [{**modules[1], "path": 7}],
        lambda modules: {"modules": modules},
        lambda modules: [1],
        lambda modules: modules[1:],
        lambda modules: [{**modules[0], "path": "1_Pooling"}],
    ],
)
def test_malformed_modules_are_refused(
    bert: Path, tmp_path: Path, change: Callable[[list[dict[str, Any]]], Any]
) -> None:
    folder = write_sentences(bert, tmp_path / "s", {"pooling_mode": "mean"})
    change_modules(folder, change)
    with pytest.raises(LoadError, match=r"modules\.json"):
        open_model(folder)


def test_a_dense_module_without_its_weights_is_refused(bert: Path, tmp_path: Path) -> None:
    folder = write_sentences(bert, tmp_path / "s", {"pooling_mode": "mean"}, "Dense")
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"no 2_Dense/model\.safetensors"):
        open_model(folder)


@pytest.mark.slow
def test_the_library_embeds_sentences(bert: Path, tmp_path: Path) -> None:
    folder = write_sentences(bert, tmp_path / "s", {"pooling_mode": "mean"}, "Normalize")
    prompts = {"prompts": {"query": "find: "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    build(tmp_path / "out", folder, dims={}, options=CompileOptions(profile=False))
    assert report(tmp_path / "out", "config_sentence_transformers.json") == prompts
    library = relaxd.load(tmp_path / "out", threads=1)
    for size in em.SIZES:
        inputs, want = em.load(bert, "bert", size)
        x = mean(want["last_hidden_state"], inputs["attention_mask"])
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        assert np.abs(library.run(inputs)["sentence_embedding"] - x).max() < 1e-5
