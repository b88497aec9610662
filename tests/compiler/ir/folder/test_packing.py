"""Packed weights of folders: their graph beside that of the floats which they mean."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors.numpy import load_file, save_file

from compiler.errors import LoadError
from compiler.ir.files.model_file import open_model
from tests.compiler.ir.folder.decoding import compute_logits, open_onnx
from tests.support.models import folders as fm
from tests.support.models.folder_packing import Form, pack

FORMS = [
    ("llama_wide", Form("gptq", 4, 32)),
    ("llama_wide", Form("gptq", 4, 64, middle=True)),
    ("llama_wide", Form("gptq", 8, -1)),
    ("llama_wide", Form("gptq_v2", 8, 16)),
    ("phi3_wide", Form("gptq_v2", 4, -1)),
    ("llama_wide", Form("awq", 4, 64)),
    ("phi3_wide", Form("awq", 4, 32)),
]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_blocks_mean_the_floats(folders: Path, tmp_path: Path, name: str, form: Form) -> None:
    few, meant = pack(folders / name, tmp_path, form)
    model = open_onnx(few)
    nodes = [node for node in model.proto.graph.node if node.op_type == "MatMulNBits"]
    # One matmul gives query, key and value.
    assert len(nodes) == 5 * fm.LAYERS
    zeros = {len(node.input) for node in nodes}
    assert zeros == ({3} if form.middle else {4})
    want = compute_logits(open_onnx(meant))
    assert np.abs(compute_logits(model) - want).max() < 2e-5 * np.abs(want).max()


def test_numbers_stay_as_they_are_packed(folders: Path, tmp_path: Path) -> None:
    few, meant = pack(folders / "llama_wide", tmp_path, Form("gptq", 4, 32))
    proto = open_onnx(few).proto
    stored = {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer}
    module = "model.layers.1.mlp.down_proj"
    numbers = stored[f"{module}.numbers"]
    both = np.stack([numbers & 15, numbers >> 4], -1).reshape(*numbers.shape[:-1], -1)
    columns, blocks = both.shape[:2]
    packed_zeros = stored[f"{module}.zeros"].reshape(columns, -1)
    zeros = np.stack([packed_zeros & 15, packed_zeros >> 4], -1).reshape(columns, -1)[:, :blocks]
    apart = both.astype(np.float64) - zeros[..., None]
    floats = (apart * stored[f"{module}.scales"][..., None]).reshape(columns, -1)
    want = load_file(meant / "model.safetensors")[f"{module}.weight"]
    np.testing.assert_array_equal(floats.astype(np.float32), want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quant_method": "bitsandbytes"}, "'bitsandbytes'"),
        ({"bits": 3}, "weights of 3 bits"),
        ({"quant_method": "awq", "version": "gemv"}, "packed by awq"),
        ({"group_size": 0}, "group_size"),
        ({"group_size": 48}, "whole groups|no tensor"),
        ({"group_size": 8}, "groups of 8|no tensor"),
        ({"bits": 8}, "no tensor"),
    ],
)
def test_other_packings_are_refused(
    folders: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    few, _ = pack(folders / "llama_wide", tmp_path, Form("gptq", 4, 32))
    path = few / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= change
    path.write_text(json.dumps(config))
    with pytest.raises(LoadError, match=message):
        open_model(few)


def test_groups_out_of_order_are_refused(folders: Path, tmp_path: Path) -> None:
    few, _ = pack(folders / "llama_wide", tmp_path, Form("gptq", 4, 32))
    stored = load_file(few / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.g_idx"
    for order, message in (
        (stored[name][::-1].copy(), "desc_act=False"),
        (stored[name].astype(np.int64), "I64"),
    ):
        save_file(stored | {name: order}, few / "model.safetensors")
        with pytest.raises(LoadError, match=message):
            open_model(few)


def test_packed_weights_without_settings_are_refused(folders: Path, tmp_path: Path) -> None:
    few, _ = pack(folders / "llama_wide", tmp_path, Form("awq", 4, 32))
    config = json.loads((few / "config.json").read_text())
    del config["quantization_config"]
    (few / "config.json").write_text(json.dumps(config))
    with pytest.raises(LoadError, match="quantization_config"):
        open_model(few)
