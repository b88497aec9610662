"""A folder's way to a library with in-place KV caches, and to answers."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxd
from compiler.ir.files.model_file import open_model
from relaxd.contract.options import CompileOptions, StateForm
from relaxd.llm import Engine, Sampling
from tests.compiler.building import build, report
from tests.support.models import folders as fm

pytestmark = pytest.mark.slow

DIMS: dict[str, Any] = {
    "batch_size": (1, 2),
    "sequence_length": (1, 32),
    "past_sequence_length": (0, 64),
    "total_sequence_length": (1, 64),
}
LETTERS = [chr(ord("A") + i) for i in range(fm.WORDS)]
LETTER = {"pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
WORDS = {letter: index for index, letter in enumerate(LETTERS)}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Split", **LETTER},
    "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "A"},
    "decoder": {"type": "Fuse"},
}
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def pack_folder(folders: Path, path: Path) -> Path:
    """A tar of gemma3 with a tokenizer."""
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folders / "gemma3", "gemma3")
        for name, text in (
            ("tokenizer.json", json.dumps(TOKENIZER)),
            ("tokenizer_config.json", "{}"),
            ("chat_template.jinja", TEMPLATE),
        ):
            member = tarfile.TarInfo(f"gemma3/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_a_library_with_caller_owned_kv_caches(folders: Path, tmp_path: Path) -> None:
    output, model = tmp_path / "out", pack_folder(folders, tmp_path / "gemma3.tgz")
    options = CompileOptions(profile=False, state=StateForm.LIFTED)
    manifest = build(output, model, dims=DIMS, options=options)
    assert manifest.name == "gemma3"
    assert manifest.action_key["parts"]["model"] == open_model(model).digest
    assert report(output, "numerics.json")["verdict"] == "passed"
    want = np.load(folders / "gemma3" / fm.LOGITS)
    state = relaxd.load(output, threads=1).state(entries=1, capacity=32)
    parts = [fm.TOKENS[:9], fm.TOKENS[9:16], fm.TOKENS[16:]]
    got = np.concatenate([state.step([part])["logits"][0] for part in parts])
    assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
    with Engine.open(output, threads=1, sequences=1) as engine:
        prompt = "".join(LETTERS[token] for token in fm.TOKENS)
        completion = engine.chat([{"role": "user", "content": prompt}], Sampling(max_tokens=1))
        assert completion.text() == LETTERS[want[-1].argmax()]
        assert engine.text is not None
        assert engine.text.ends == {2}
