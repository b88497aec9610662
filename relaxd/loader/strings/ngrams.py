"""ONNX's TfIdfVectorizer: how often each n-gram of a table occurs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from relaxd.errors import InputError
from relaxd.loader.strings.registry import Array, Run, list_of, operator, value_of

Gram = tuple[str, ...]


@operator("ngrams")
def _ngrams(attributes: Mapping[str, Any]) -> Run:
    """[n] or [rows, n] of strings to float32 [..., size].

    grams: the n-grams; positions: of each among the outputs; weights: of each output; skip: the
    largest number of tokens between two of a gram. mode: TF counts, IDF has the weight of those
    that occur, TFIDF both.
    """
    weigh = _weighting(attributes)
    size = value_of(attributes, "size", int)
    shortest, longest = value_of(attributes, "shortest", int), value_of(attributes, "longest", int)
    skip = value_of(attributes, "skip", int)
    positions = _positions(attributes, size)
    lengths = sorted({len(gram) for gram in positions if shortest <= len(gram) <= longest})

    def run(x: Array) -> tuple[Array]:
        if x.ndim not in (1, 2):
            raise InputError(f"n-grams are counted of [n] or [rows,n], not of {list(x.shape)}")
        counts = np.zeros((1 if x.ndim == 1 else x.shape[0], size), np.float32)
        for row, tokens in zip(counts, x.reshape(len(counts), -1).tolist(), strict=True):
            for gram in _grams(tokens, lengths, skip):
                if (position := positions.get(gram)) is not None:
                    row[position] += 1
        return (weigh(counts[0] if x.ndim == 1 else counts),)

    return run


def _positions(attributes: Mapping[str, Any], size: int) -> dict[Gram, int]:
    grams = [tuple(list_of({"gram": gram}, "gram", str)) for gram in attributes["grams"]]
    numbers = list_of(attributes, "positions", int)
    if len(numbers) != len(grams) or not all(0 <= number < size for number in numbers):
        raise ValueError("an n-gram has no position among the outputs")
    return dict(zip(grams, numbers, strict=True))


def _grams(tokens: list[str], lengths: list[int], skip: int) -> Iterator[Gram]:
    """Those of tokens `distance` apart, each once for every distance up to skip + 1."""
    for length in lengths:
        for distance in range(1, (skip if length > 1 else 0) + 2):
            for start in range(len(tokens) - (length - 1) * distance):
                yield tuple(tokens[start : start + (length - 1) * distance + 1 : distance])


def _weighting(attributes: Mapping[str, Any]) -> Callable[[Array], Array]:
    mode, size = attributes["mode"], value_of(attributes, "size", int)
    weights = np.array(attributes.get("weights") or np.ones(size), np.float32)
    if weights.shape != (size,):
        raise ValueError(f"{len(weights)} weights are given for {size} outputs")
    modes: dict[str, Callable[[Array], Array]] = {
        "TF": lambda counts: counts,
        "IDF": lambda counts: (counts > 0) * weights,
        "TFIDF": lambda counts: counts * weights,
    }
    return modes[mode]
