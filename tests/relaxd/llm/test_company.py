"""Answers in company are those of each request alone: the same bits of scores, token by token."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxd.contract.options import CacheForm
from relaxd.llm import Engine, Sampling, Speculation
from relaxd.llm.generation import Generation
from tests.support.models.gguf_files import WORDS
from tests.support.models.invariants import quantized_decoder

TOKENS = 24


def prompts() -> list[list[int]]:
    """Some that begin alike, some that repeat themselves, and longer ones than a piece."""
    draw = np.random.default_rng(9)
    shared = draw.integers(0, WORDS, 40).tolist()
    own = [draw.integers(0, WORDS, int(length)).tolist() for length in (1, 3, 20, 36, 90, 200)]
    return [*own, *(shared + several for several in own[:4]), own[2] * 3, own[1] * 9]


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[bytes]]:
    """By the generation's id, the bytes of the scores of each of its tokens."""
    seen: dict[int, list[bytes]] = defaultdict(list)
    take = Generation.take

    def noting(created: Generation, arguments: "np.ndarray[Any, Any]", room: int) -> int:
        seen[id(created)].append(arguments.tobytes())
        return take(created, arguments, room)

    monkeypatch.setattr(Generation, "take", noting)
    return seen


@pytest.mark.parametrize("cache", [CacheForm.FLOAT32, CacheForm.INT8])
def test_scores_in_company_are_those_alone(
    tmp_path: Path, scores: dict[int, list[bytes]], cache: CacheForm
) -> None:
    bundle, sampling = quantized_decoder(tmp_path, cache), Sampling(max_tokens=TOKENS)
    with Engine.open(bundle, threads=1, sequences=1, sharing=False) as engine:
        alone = [engine.generate(prompt, sampling) for prompt in prompts()]
        for created in alone:
            created.text()
    drafts = Speculation.parse("ngram:4")
    with Engine.open(bundle, threads=2, sequences=5, speculate=drafts) as engine:
        batched = [engine.generate(prompt, sampling) for prompt in prompts()]
        for created in batched:
            created.text()
    for one, other in zip(alone, batched, strict=True):
        assert one.tokens == other.tokens
        assert scores[id(one)] == scores[id(other)]
        assert len(scores[id(one)]) == len(one.tokens)
