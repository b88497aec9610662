"""The logits of a folder's decoder by its graph, for tests."""

from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.files.model_file import LoadedModel, open_model
from tests.compiler.ir.onnx.running import session_of
from tests.support.models import folders as fm

PARTS = ((0, 1), (1, 12), (12, 13), (13, 17))


def open_onnx(path: Path) -> LoadedModel:
    loaded = open_model(path)
    assert isinstance(loaded, LoadedModel)
    return loaded


def compute_logits(model: LoadedModel) -> np.ndarray:
    """[tokens, words] of the graph, its caches handed on from part to part."""
    session: Any = session_of(model.proto)
    caches = {
        entry.name: np.zeros((1, entry.shape[1], 0, entry.shape[3]), np.float32)
        for entry in session.get_inputs()
        if entry.name.startswith("past")
    }
    logits = []
    for first, last in PARTS:
        tokens = np.array([fm.TOKENS[first:last]])
        feed = {"input_ids": tokens, "attention_mask": np.ones((1, last), np.int64), **caches}
        got, *presents = session.run(None, feed)
        logits.append(got[0])
        caches = dict(zip(caches, presents, strict=True))
    return np.concatenate(logits)
