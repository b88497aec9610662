"""Cases whose expected numbers are those of one random generator: judged by the law that the
operator draws by.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.conformance.cases import Case

SEEDS = 256
_SIGMAS = 5.0
_ZERO_RATIO = "zero_ratio"
"""Dropout that drops nothing has one right answer."""

Run = Callable[[Sequence[Any], int], list[Any]]
"""The outputs for inputs and a seed."""


def random(case: Case) -> bool:
    """True if a case's expected numbers are one draw of many."""
    return bool(re.match("test_(bernoulli|training_dropout)", case.name)) and (
        _ZERO_RATIO not in case.name
    )


def broken(case: Case, run: Run) -> str:
    """How the outputs over many seeds break the law, empty where they do not.

    Every draw must have the expected shape and dtype and hold only values that the operator can
    give; the share of each element must be the declared probability, to five standard deviations.
    """
    for inputs, wanted in case.data_sets:
        sampled = [run(inputs, seed) for seed in range(SEEDS)]
        for outputs in sampled:
            results = [(output.shape, output.dtype) for output in outputs]
            if results != [(output.shape, output.dtype) for output in wanted]:
                return f"outputs are {results}"
        fault = _law_of(case)(inputs, [[np.asarray(o) for o in outputs] for outputs in sampled])
        if fault:
            return fault
    return ""


def _law_of(case: Case) -> Callable[[Sequence[Any], Sequence[Sequence[Any]]], str]:
    if case.name.startswith("test_training_dropout"):
        return _dropout
    return _complement if case.name.endswith("_expanded") else _bernoulli


def _complement(inputs: Sequence[Any], sampled: Sequence[Sequence[Any]]) -> str:
    """onnx's own body of Bernoulli compares the wrong way round: it gives 0 by the probability."""
    return _bernoulli([1 - np.asarray(inputs[0])], sampled)


def _bernoulli(inputs: Sequence[Any], sampled: Sequence[Sequence[Any]]) -> str:
    ones = np.stack([outputs[0] for outputs in sampled])
    if not np.isin(ones, (0, 1)).all():
        return "a number is neither 0 nor 1"
    return _share(ones, np.asarray(inputs[0], "float64"))


def _dropout(inputs: Sequence[Any], sampled: Sequence[Sequence[Any]]) -> str:
    x, ratio = np.asarray(inputs[0]), float(inputs[1])
    results = np.stack([outputs[0] for outputs in sampled])
    retained = results != 0
    if not np.allclose(results, np.where(retained, x / (1 - ratio), 0), rtol=1e-6):
        return "a number is neither 0 nor the input over the share that is kept"
    for outputs, mask in zip(sampled, retained, strict=True):
        if len(outputs) > 1 and not np.array_equal(outputs[1], mask):
            return "the mask is not where the output is not zero"
    return _share(retained, np.full(x.shape, 1 - ratio))


def _share(hits: Any, chance: Any) -> str:
    deviation = np.sqrt(chance * (1 - chance) / len(hits))
    off = np.abs(hits.mean(axis=0) - chance) > _SIGMAS * deviation
    return f"shares of {int(off.sum())} elements are not their probability" if off.any() else ""
