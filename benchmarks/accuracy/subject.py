"""Subjects: a model, the declarations of a request, and inputs of several families."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.cpu import subjects
from benchmarks.cpu.rows import ROWS
from compiler.verify.inputs.distributions import Distribution, candidates, sample
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.tensors import TensorSpec

Feed = dict[str, NDArray[Any]]

SEEDS = 3
"""Of the inputs of a model: where a rounding error turns a rectifier on, a single draw may have
twenty times the error of the others (regnet_y_400mf on bright pages)."""


@dataclass(frozen=True)
class Subject:
    """feeds: yields the name of a family of inputs and the inputs."""

    group: str
    name: str
    model: Callable[[], onnx.ModelProto]
    dims: Mapping[str, str]
    inputs: Mapping[str, str]
    feeds: Callable[[], Iterable[tuple[str, Feed]]]


def model_subject(name: str) -> Subject:
    """A model of the wide benchmark, at the smallest of its points; raises KeyError for an unknown
    name, and what an export raises.
    """
    model = subjects.find(name)
    point = ROWS[name][0]

    def feeds() -> Iterator[tuple[str, Feed]]:
        for seed in range(SEEDS):
            base = model.feed(point, seed)
            for wanted in candidates([_spec(*item) for item in base.items()], ()):
                yield f"{wanted.value} {seed}", _sample_inputs(base, wanted, seed)

    return Subject("model", name, lambda: onnx.load(model.path), model.dims, model.inputs, feeds)


def _spec(name: str, array: NDArray[Any]) -> TensorSpec:
    return TensorSpec(name, array.dtype.name, tuple(Axis(str(size)) for size in array.shape))


def _sample_inputs(base: Feed, wanted: Distribution, seed: int) -> Feed:
    """The inputs, those that the distribution means anything to sampled from it."""
    random = np.random.default_rng(seed + 1)
    specs = {name: _spec(name, array) for name, array in base.items()}
    samples = {name: sample(spec, base[name].shape, wanted, random) for name, spec in specs.items()}
    return {
        name: array if (new := samples[name]) is None else new.astype(array.dtype)
        for name, array in base.items()
    }
