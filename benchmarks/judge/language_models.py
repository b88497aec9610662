"""Twenty small language models with random weights: GGUF files of several quantizations, folders of
several architectures, and options that store weights as int8 or int4.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.judge.subject import Subject
from tests.support.models import folders as folder_models
from tests.support.models import gguf_files
from tests.support.models.gguf_blocks import Q4_K, Q5_0, Q5_K, Q6_K
from tests.support.models.gguf_files import F16, F32, Q4_0, Q4_1, Q8_0

_WIDE = {"SIZE": 64, "WIDTH": 256, "HIDDEN": 512}
"""Groups of 256 numbers need rows of as many."""
_GROUPED = (Q4_K, Q5_K, Q6_K)
_DIMS: Mapping[str, Any] = {
    "batch_size": (1, 2),
    "sequence_length": (1, 32),
    "past_sequence_length": (0, 64),
    "total_sequence_length": (1, 64),
}


def _gguf(kind: int, table: int, head: int | None, folder: Path) -> Path:
    path = folder / "model.gguf"
    sizes = _WIDE if kind in _GROUPED else {}
    metadata = {
        **gguf_files.METADATA,
        "llama.embedding_length": sizes.get("WIDTH", gguf_files.WIDTH),
        "llama.feed_forward_length": sizes.get("HIDDEN", gguf_files.HIDDEN),
    }
    with mock.patch.dict(vars(gguf_files), sizes):
        gguf_files.write(path, gguf_files.tensors(kind, table, head), metadata)
    return path


def _folder(name: str, folder: Path) -> Path:
    folder_models.write(folder, [name])
    return folder / name


def _of_gguf(kind: int, table: int, head: int | None = None, **options: Any) -> Subject:
    return Subject(partial(_gguf, kind, table, head), _DIMS, options=options)


def _of_folder(name: str, **options: Any) -> Subject:
    return Subject(partial(_folder, name), _DIMS, options=options)


LANGUAGE_MODELS = {
    "gguf-f32": _of_gguf(F32, F32),
    "gguf-f32-int8": _of_gguf(F32, F32, weights="int8"),
    "gguf-f32-int4": _of_gguf(F32, F32, weights="int4"),
    "gguf-f16": _of_gguf(F16, F16, F32),
    "gguf-f16-int4": _of_gguf(F16, F16, F32, weights="int4"),
    "gguf-q8_0": _of_gguf(Q8_0, Q8_0),
    "gguf-q8_0-products": _of_gguf(Q8_0, Q8_0, precision="int8"),
    "gguf-q4_0": _of_gguf(Q4_0, Q4_0),
    "gguf-q4_0-products": _of_gguf(Q4_0, Q4_0, precision="int8"),
    "gguf-q4_1": _of_gguf(Q4_1, Q4_1, Q8_0),
    "gguf-q5_0": _of_gguf(Q5_0, Q5_0),
    "gguf-q4_k": _of_gguf(Q4_K, Q4_K),
    "gguf-q6_k": _of_gguf(Q6_K, Q6_K),
    "folder-llama-int4": _of_folder("llama", weights="int4"),
    "folder-mistral": _of_folder("mistral"),
    "folder-qwen2": _of_folder("qwen2"),
    "folder-qwen3-int8": _of_folder("qwen3", weights="int8"),
    "folder-phi3-int4": _of_folder("phi3", weights="int4"),
    "folder-gemma3": _of_folder("gemma3"),
    "folder-smollm3": _of_folder("smollm3", weights="int8"),
}
