"""Finds the model of a row: among those of `tests.support.models.known`, this benchmark's own, or
the zoo's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.cpu.models import CASES as OWN
from benchmarks.cpu.rows import Point
from tests.support.models import known
from tests.zoo.case import Case, Feed, feed_of
from tests.zoo.cases import CASES as ZOO

_OWN = {case.name: case for case in OWN.values()}


@dataclass(frozen=True)
class Model:
    """A file of ONNX, what the compile request declares about it, and inputs at a point by a
    seed.
    """

    path: Path
    dims: Mapping[str, str]
    inputs: Mapping[str, str]
    feed: Callable[[Point, int], Feed]


def missing_package(name: str) -> str:
    """The package without which there is no such model; empty where it is installed."""
    if name in known.MODELS:
        return ""
    case = case_of(name)
    return "" if case.installed else case.needs


def find(name: str) -> Model:
    """The model, its file made on first use; raises KeyError for an unknown name, and what an
    export raises.
    """
    if name in known.MODELS:
        real = known.MODELS[name]
        return Model(known.path_of(name), real.dims, real.inputs, partial(known.feed_of, name))
    case = case_of(name)
    path = case.export()
    return Model(path, case.dims, case.inputs, partial(feed_of, case, path))


def case_of(name: str) -> Case:
    """Return the benchmark's own case, or the zoo's; raises KeyError for an unknown name."""
    return _OWN[name] if name in _OWN else ZOO[name]
