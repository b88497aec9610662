"""Encoders of folders: their graph in ONNX Runtime beside torch, with padding."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import relaxd
from compiler.errors import ImportFailed, LoadError
from compiler.frontend.limits import within_limits
from compiler.ir.encoders.layers import bucket_offsets
from compiler.ir.files.model_file import open_model
from compiler.ir.folder.config import Config
from compiler.ir.folder.encoders.architectures import ARCHITECTURES
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest
from relaxd.errors import InputError
from tests.compiler.building import build, report
from tests.compiler.ir.folder.decoding import open_onnx
from tests.compiler.ir.folder.test_decoder import VALUES
from tests.compiler.ir.onnx.running import session_of
from tests.support.models import encoder_folders as em


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds one folder for each of `encoder_folders.FORMS`, and what torch gives."""
    folder = tmp_path_factory.mktemp("encoders")
    em.write(folder, em.FORMS)
    return folder


def compare(got: dict[str, Any], want: dict[str, Any], mask: Any, tolerance: float) -> None:
    """Outputs of all tokens that the mask shows, beside the largest that torch has."""
    assert got.keys() == want.keys()
    for name, expected in want.items():
        assert got[name].shape == expected.shape
        shown = mask.astype(bool) if expected.shape[:2] == mask.shape else slice(None)
        difference = np.abs(got[name] - expected)[shown]
        assert difference.max() < tolerance * max(1, np.abs(expected).max()), name


@pytest.mark.parametrize("name", em.FORMS)
def test_the_graph_is_the_encoder(encoders: Path, name: str) -> None:
    session: Any = session_of(open_onnx(encoders / name).proto)
    for size in em.SIZES:
        inputs, want = em.load(encoders, name, size)
        names = [output.name for output in session.get_outputs()]
        got = dict(zip(names, session.run(None, inputs), strict=True))
        compare(got, want, inputs["attention_mask"], 2e-5)


def copy_with(folder: Path, path: Path, change: dict[str, Any]) -> Path:
    """A folder with other settings; None takes one away."""
    shutil.copytree(folder, path)
    config = json.loads((path / "config.json").read_text()) | change
    settings = {key: value for key, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize(
    ("name", "change", "code", "message"),
    [
        (
            "bert",
            {"architectures": ["DebertaV2Model"]},
            "_architecture",
            r"T\.DebertaV2Model.*torch\.onnx\.export",
        ),
        ("bert", {"architectures": ["CLIPModel"]}, "_architecture", "CLIPModel"),
        ("bert", {"position_embedding_type": "relative_key"}, "_architecture", "absolute"),
        ("bert", {"is_decoder": True}, "_architecture", "is_decoder"),
        ("bert", {"hidden_act": "mish"}, "_architecture", "'mish'"),
        ("bert", {"num_attention_heads": 7}, "", "7 heads"),
        ("bert", {"num_hidden_layers": 4}, "", "layer.3"),
        ("bert", {"num_hidden_layers": 2}, "_architecture", "16 tensors"),
        ("bert", {"vocab_size": 60}, "", "of the shape"),
        ("bert_words", {"tie_word_embeddings": False}, "_architecture", "tied"),
        ("roberta", {"pad_token_id": -1}, "", "pad_token_id"),
        ("roberta", {"pad_token_id": 60, "max_position_embeddings": 61}, "", "max_position"),
        ("modernbert", {"layer_types": ["full_attention"]}, "", "4 layers"),
        ("modernbert", {"layer_types": ["linear"] * 4}, "_architecture", "'linear'"),
        ("modernbert_classes", {"classifier_pooling": "max"}, "_architecture", "'max'"),
    ],
)
def test_other_encoders_are_refused(
    encoders: Path, tmp_path: Path, name: str, change: dict[str, Any], code: str, message: str
) -> None:
    with pytest.raises(LoadError, match=message) as caught:
        open_model(copy_with(encoders / name, tmp_path / "m", change))
    assert caught.value.code == f"load.folder{code}"


def test_settings_of_older_versions_mean_the_same(encoders: Path, tmp_path: Path) -> None:
    older = {
        "rope_parameters": None,
        "layer_types": None,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
        "global_attn_every_n_layers": 3,
    }
    model = open_onnx(copy_with(encoders / "modernbert", tmp_path / "m", older))
    inputs, want = em.load(encoders, "modernbert", (2, 190))
    got: Any = session_of(model.proto).run(None, inputs)
    compare({"last_hidden_state": got[0]}, want, inputs["attention_mask"], 2e-5)


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "distilbert"])
def test_any_setting_is_read_or_refused(encoders: Path, name: str) -> None:
    config = json.loads((encoders / name / "config.json").read_text())
    family, _ = ARCHITECTURES[config["architectures"][0]]
    refused = 0
    for key in config:
        for value in VALUES:
            try:
                family.describe(Config(config | {key: value}))
            except LoadError:
                refused += 1
    assert refused


def test_distances_have_the_rows_of_torch(encoders: Path) -> None:
    rows = np.load(encoders / em.ROWS)
    assert np.array_equal(bucket_offsets((len(rows) + 1) // 2), rows)


def test_old_names_of_norms_and_heads_of_other_tasks(encoders: Path, tmp_path: Path) -> None:
    path = copy_with(encoders / "bert_words", tmp_path / "m", {"architectures": ["BertModel"]})
    tensors = load_file(path / "model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): values
        for name, values in tensors.items()
    }
    renamed["bert.embeddings.position_ids"] = np.arange(em.LONGEST)[None]
    save_file(renamed, path / "model.safetensors")
    shutil.copytree(encoders / "bert_words", tmp_path / "plain")
    (tmp_path / "plain" / "config.json").write_text((path / "config.json").read_text())
    inputs, _ = em.load(encoders, "bert_words", (2, 7))
    results = [
        session_of(open_onnx(folder).proto).run(None, inputs)[0]
        for folder in (path, tmp_path / "plain")
    ]
    assert np.array_equal(*results)


def test_lengths_end_where_positions_do(encoders: Path) -> None:
    for name, longest in (("bert", em.LONGEST), ("roberta", em.LONGEST - em.PADDING - 1)):
        model = open_onnx(encoders / name)
        dims = within_limits(model.limits, CompileRequest()).dims
        assert [(dim.name, dim.max) for dim in dims] == [("sequence_length", longest)]
        for declared in ("1:4096", "1024", {"min": 8, "multiple": 512}):
            request = CompileRequest.of(dims={"sequence_length": declared})
            with pytest.raises(ImportFailed, match=f"positions for {longest}"):
                within_limits(model.limits, request)
        request = CompileRequest.of(inputs={"input_ids": "int64[b,n]"})
        assert within_limits(model.limits, request).dim_table["n"].max == longest
        fixed = CompileRequest.of(inputs={"input_ids": "int64[2,300]"})
        with pytest.raises(ImportFailed, match="may be 300"):
            within_limits(model.limits, fixed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bert", "roberta_classes", "xlm_roberta", "distilbert", "mpnet", "modernbert"]
)
def test_the_library_is_the_encoder(encoders: Path, tmp_path: Path, name: str) -> None:
    manifest = build(
        tmp_path / "out", encoders / name, dims={}, options=CompileOptions(profile=False)
    )
    assert manifest.action_key["parts"]["model"] == open_model(encoders / name).digest
    assert report(tmp_path / "out", "numerics.json")["verdict"] == "passed"
    library = relaxd.load(tmp_path / "out", threads=1)
    for size in em.SIZES:
        inputs, want = em.load(encoders, name, size)
        compare(library.run(inputs), want, inputs["attention_mask"], 1e-4)
    most = max(dim.max or 0 for dim in manifest.dims)
    too_long = em.text_inputs((1, most + 1), 2 if "token_type_ids" in inputs else 0)
    with pytest.raises(InputError, match="sequence_length"):
        library.run(too_long)
