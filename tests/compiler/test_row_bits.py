"""A sequence's outputs do not depend, to the bit, on what is computed beside it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import relaxd
from relaxd.loader.model import Model
from tests.support.geometries import NAMES, NATIVE, builds_for
from tests.support.models.gguf_files import WORDS
from tests.support.models.invariants import LONGEST, MOST, quantized_decoder

LENGTH = 280
TEXTS = np.random.default_rng(5).integers(0, WORDS, (8, LONGEST))
SAMPLE = ("128/16", "512/32", NATIVE)


def cut(length: int, piece: int) -> list[int]:
    """The length in pieces of a size."""
    return [min(piece, length - first) for first in range(0, length, piece)]


def bits(
    model: Model,
    pieces: Sequence[int],
    *,
    entries: int = 1,
    slot: int = 0,
    before: int = 0,
    capacity: int = LONGEST,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The bits of the logits [tokens, words] and of the caches of the text at `place`, each call
    taking a piece of every entry, of which the others are `before` tokens ahead.
    """
    state = model.state(entries=entries, capacity=capacity)
    for entry in range(entries):
        for first in range(0, before if entry != slot else 0, MOST):
            state.step(TEXTS[entry : entry + 1, first : min(first + MOST, before)], first=entry)
    logits, start = [], 0
    for piece in pieces:
        tokens = TEXTS[np.arange(entries) if entries > 1 else [0], start : start + piece].copy()
        tokens[slot] = TEXTS[0, start : start + piece]
        logits.append(state.step(tokens)["logits"][slot].copy())
        start += piece
    names = [cache.input for cache in model.manifest.state.caches]
    caches = [state.cached(name, slot)[:, :start].copy() for name in names]
    return np.concatenate(logits).view(np.int32), [cache.view(np.int32) for cache in caches]


@pytest.mark.parametrize(
    "name",
    [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def test_a_sequence_alone_in_company_and_in_pieces(tmp_path: Path, name: str) -> None:
    with builds_for(name):
        bundle = quantized_decoder(tmp_path)
    one, two = (relaxd.load(bundle, threads=threads) for threads in (1, 2))
    want, want_held = bits(one, [1] * LENGTH)
    assert len(np.unique(want)) > LENGTH

    def check(got: tuple[np.ndarray, list[np.ndarray]], what: str) -> None:
        logits, caches = got
        np.testing.assert_array_equal(logits, want[: len(logits)], what)
        for cache, wanted in zip(caches, want_held, strict=True):
            np.testing.assert_array_equal(cache, wanted[:, : cache.shape[1]], what)

    for piece in (2, 5, 8, 9, 16, 32, 33, 128):
        check(bits(one, cut(LENGTH, piece)), f"pieces of {piece}")
        check(bits(two, cut(LENGTH, piece)), f"pieces of {piece}, two threads")
    for entries in (2, 4, 8):
        for slot in (0, entries - 1):
            check(bits(one, [1] * 8, entries=entries, slot=slot), f"{slot} of {entries}")
        check(bits(two, [33, 1, 7, 1], entries=entries), f"{entries}, two threads")
    check(bits(one, [40, 1, 7, 1], entries=2, before=LONGEST - 49), "behind a longer one")
    check(bits(one, [1] * LENGTH, capacity=LENGTH), "caches of another length")
