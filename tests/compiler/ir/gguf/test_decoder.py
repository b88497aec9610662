"""Decoders of GGUF files: their graph in ONNX Runtime beside the decoder in float64, and a library
whose caches stay.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxd
from compiler.errors import LoadError
from compiler.ir.files.model_file import LoadedModel, open_model
from compiler.verify.judge.evidence import NOISE_TIMES
from compiler.verify.uncertainty import PERTURBATIONS
from relaxd.contract.options import CompileOptions, Precision, StateForm
from relaxd.llm import Engine, Sampling
from tests.compiler.building import build, report
from tests.compiler.ir.onnx.running import session_of
from tests.support.models import gguf_blocks, gguf_files
from tests.support.models.gguf_files import (
    F16,
    F32,
    GROUPS,
    METADATA,
    Q2_K,
    Q4_0,
    Q4_1,
    Q8_0,
    WORDS,
    in_blocks,
    logits,
    tensors,
    write,
)

VOCABULARY = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV", "he", ":"]
END = VOCABULARY.index("V")
_TEXT = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": VOCABULARY,
    "tokenizer.ggml.merges": ["h e"],
    "tokenizer.ggml.eos_token_id": END,
    "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}:{% endfor %}",
}
TOKENS = [3, 49, 0, 17, 17, 8, 30]
FORMS = [
    (F32, F32, None),
    (F16, F16, F32),
    (Q8_0, Q8_0, None),
    (Q4_0, Q4_0, None),
    (Q4_1, Q8_0, None),
    (Q4_1, Q4_1, Q8_0),
]


def open_onnx(path: Path) -> LoadedModel:
    loaded = open_model(path)
    assert isinstance(loaded, LoadedModel)
    return loaded


@pytest.mark.parametrize(("kind", "table", "head"), FORMS)
def test_the_graph_is_the_decoder(tmp_path: Path, kind: int, table: int, head: int | None) -> None:
    path = tmp_path / "model.gguf"
    _check_graph(path, write(path, tensors(kind, table, head)))


@pytest.mark.parametrize("kind", gguf_blocks.SIZES)
def test_groups_of_256_and_numbers_of_five_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    monkeypatch.setattr(gguf_files, "SIZE", 64)
    monkeypatch.setattr(gguf_files, "WIDTH", 256)
    monkeypatch.setattr(gguf_files, "HIDDEN", 512)
    path = tmp_path / "model.gguf"
    sizes = {"llama.embedding_length": 256, "llama.feed_forward_length": 512}
    _check_graph(path, write(path, tensors(kind, kind), METADATA | sizes))


def _check_graph(path: Path, weights: dict[str, np.ndarray]) -> None:
    """Compare the graph in ONNX Runtime with the decoder, for a prompt in parts."""
    model = open_onnx(path).proto
    session: Any = session_of(model)
    caches = {
        entry.name: np.zeros((1, GROUPS, 0, entry.shape[-1]), np.float32)
        for entry in session.get_inputs()
        if entry.name.startswith("past")
    }
    want = logits(weights, TOKENS)
    span = np.abs(want).max()
    for first, last in ((0, 4), (4, 5), (5, 7)):
        tokens = np.array([TOKENS[first:last]])
        feed = {"input_ids": tokens, "attention_mask": np.ones((1, last), np.int64), **caches}
        got, *presents = session.run(None, feed)
        assert got.shape == (1, last - first, WORDS)
        assert np.abs(got[0] - want[first:last]).max() < 1e-5 * span
        caches = dict(zip(caches, presents, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.INT8])
def test_a_library_with_caller_owned_kv_caches(tmp_path: Path, precision: Precision) -> None:
    path = tmp_path / "model.gguf"
    weights = write(path, tensors(Q4_1, Q8_0), METADATA | _TEXT)
    dims = {
        "batch_size": (1, 2),
        "sequence_length": (1, 16),
        "past_sequence_length": (0, 32),
        "total_sequence_length": (1, 32),
    }
    options = CompileOptions(profile=False, state=StateForm.LIFTED, precision=precision)
    output = tmp_path / "out"
    build(output, path, dims=dims, options=options)
    assert report(output, "numerics.json")["verdict"] == "passed"
    state = relaxd.load(output, threads=1).state(entries=1, capacity=16)
    quantize = in_blocks() if precision is Precision.INT8 else np.asarray
    want = logits(weights, TOKENS, quantize)
    got = [state.step([TOKENS[:4]])["logits"][0]]
    got += [state.step([[token]])["logits"][0] for token in TOKENS[4:]]
    # A float32 beside the middle of two integers may round to the other one than a float64 does:
    # then the decoder does so too whose numbers are moved a little.
    moved = [
        np.abs(logits(weights, TOKENS, in_blocks(perturbation)) - want).max()
        for perturbation in PERTURBATIONS
        if precision is Precision.INT8
    ]
    allowed = 1e-5 * np.abs(want).max() + NOISE_TIMES * max(moved, default=0)
    assert allowed < 5e-3 * np.abs(want).max()
    assert np.abs(np.concatenate(got) - want).max() < allowed
    # The bundle has all that serving takes.
    tokens = [VOCABULARY.index(part) for part in ("he", "l", "l", "o", ":")]
    for _ in range(3):
        tokens.append(int(logits(weights, tokens, quantize)[-1].argmax()))
    assert END not in tokens
    with Engine.open(output, threads=1, sequences=1) as engine:
        completion = engine.chat([{"role": "user", "content": "hello"}], Sampling(max_tokens=3))
        assert completion.text() == "".join(VOCABULARY[token] for token in tokens[5:])
        assert engine.text is not None
        assert engine.text.ends == {END}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"general.architecture": "mamba"}, "load.gguf_architecture"),
        ({"llama.rope.scaling.type": "longrope"}, "load.gguf_architecture"),
        ({"llama.rope.scaling.type": "yarn"}, "load.gguf"),
        ({"llama.rope.freq_base": 0.5}, "load.gguf"),
        ({"llama.attention.scale": 1.0}, "load.gguf_architecture"),
        ({"llama.attention.key_length": 12}, "load.gguf_architecture"),
        ({"llama.expert_count": 8}, "load.gguf_architecture"),
        ({"llama.rope.dimension_count": 8}, "load.gguf_architecture"),
        ({"llama.attention.head_count": 5}, "load.gguf_architecture"),
        ({"llama.attention.head_count_kv": 3}, "load.gguf_architecture"),
        ({"llama.context_length": (1 << 24) - 1}, "load.gguf_architecture"),
        ({"llama.block_count": 0}, "load.gguf"),
        ({"llama.block_count": 3}, "load.gguf"),
        ({"llama.embedding_length": 32}, "load.gguf"),
        ({"llama.context_length": "long"}, "load.gguf"),
    ],
)
def test_other_decoders_are_refused(tmp_path: Path, change: dict[str, Any], code: str) -> None:
    path = tmp_path / "model.gguf"
    write(path, tensors(F32, F32), {**METADATA, **change})
    with pytest.raises(LoadError) as caught:
        open_model(path)
    assert caught.value.code == code


def test_other_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path, tensors(F32, F32))
    data = bytearray(path.read_bytes())
    offset = data.index(b"blk.1.ffn_up.weight") + len(b"blk.1.ffn_up.weight") + 4 + 2 * 8
    data[offset] = Q2_K
    path.write_bytes(data)
    with pytest.raises(LoadError, match=r"ffn_up.*llama-quantize") as caught:
        open_model(path)
    assert caught.value.code == "load.gguf_format"


def test_what_is_cut_short_is_refused_at_any_length(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path, tensors(Q4_0, Q8_0))
    data = path.read_bytes()
    for length in (*range(4, 300, 7), *range(300, len(data) - 64, 4099)):
        path.write_bytes(data[:length])
        with pytest.raises(LoadError) as caught:
            open_model(path)
        assert caught.value.code in ("load.gguf", "load.truncated")
