"""Errors of every engine on a subject against float64."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks import engines
from benchmarks.accuracy.subject import Feed, Subject
from compiler.verify.reference.float64 import Float64
from relaxd.timing.engines import Runner

ENGINES = ("relaxd", "onnxruntime", "openvino")
PEERS = ENGINES[1:]
LEAST = 2.0**-27
"""The least error, as a share of the spread: below float32's own rounding of a result."""


@dataclass(frozen=True)
class Error:
    """Shares of the spread of the output: root of the mean square, and the largest."""

    rms: float
    largest: float

    @classmethod
    def of(cls, got: Sequence[NDArray[Any]], want: Sequence[NDArray[Any]]) -> Error:
        """Measure all outputs of floats, each of which counts alike; raises ValueError where one
        has another shape, or is not finite where the exact one is.
        """
        parts = [
            _shares(np.asarray(array, np.float64), exact)
            for array, exact in zip(got, want, strict=True)
            if exact.dtype.kind == "f" and exact.size
        ]
        rms = float(np.sqrt(np.mean([np.mean(np.square(part)) for part in parts])))
        largest = max(float(part.max()) for part in parts)
        return cls(max(rms, LEAST), max(largest, LEAST))


def _shares(got: NDArray[Any], want: NDArray[Any]) -> NDArray[Any]:
    if got.shape != want.shape:
        raise ValueError(f"a result of shape {got.shape} where {want.shape} is right")
    finite = np.isfinite(want)
    if not np.array_equal(finite, np.isfinite(got)):
        raise ValueError("a result that is not finite where float64 is")
    if not finite.any():
        return np.zeros(1)
    got, want = got[finite], want[finite]
    # Of a constant output, or of one element, its size.
    spread = max(float(want.std()), 1e-3 * float(np.abs(want).max()))
    return np.abs(got - want) / (spread or 1.0)


def measure(subject: Subject, names: Sequence[str]) -> dict[str, Any]:
    """The row of a subject: `errors` by engine, geometric means over the families of inputs, or
    `failures`; `ratio` to the better peer.
    """
    with TemporaryDirectory(prefix="accuracy-") as scratch:
        folder = Path(scratch)
        path = folder / "model.onnx"
        model = subject.model()
        onnx.save(model, path)
        feeds = dict(subject.feeds())
        exact = Float64(str(path))
        wants = {name: list(exact.run(feed, {}).values()) for name, feed in feeds.items()}
        described = _engine_subject(subject, model, path, folder)
        errors: dict[str, dict[str, Error]] = {}
        failures: dict[str, str] = {}
        for name in names:
            try:
                errors[name] = _errors(engines.ENGINES[name](described), feeds, wants)
            # An engine raises whatever it does for an operator that it lacks.
            except Exception as error:
                failures[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        kernels = _families(folder / "relaxd")
    return {
        "group": subject.group,
        "name": subject.name,
        "kernels": kernels,
        "inputs": list(feeds),
        "float32": sorted(exact.float32),
        "failures": failures,
        **summary(errors),
    }


def summary(errors: Mapping[str, Mapping[str, Error]]) -> dict[str, Any]:
    """Means over the families of inputs, and the ratios of ours to the better peer's."""
    means = {
        engine: {
            "rms": geometric_mean(error.rms for error in by_inputs.values()),
            "largest": geometric_mean(error.largest for error in by_inputs.values()),
        }
        for engine, by_inputs in errors.items()
    }
    peers = [engine for engine in PEERS if engine in means]
    if not peers or ENGINES[0] not in means:
        return {"errors": means, "ratio": None, "largest_ratio": None}
    ratios = {
        kind: means[ENGINES[0]][kind] / min(means[peer][kind] for peer in peers)
        for kind in ("rms", "largest")
    }
    return {"errors": means, "ratio": ratios["rms"], "largest_ratio": ratios["largest"]}


def _engine_subject(
    subject: Subject, model: onnx.ModelProto, path: Path, folder: Path
) -> engines.Subject:
    stored = {tensor.name for tensor in model.graph.initializer}
    return engines.Subject(
        path,
        tuple(value.name for value in model.graph.input if value.name not in stored),
        threads=1,
        dims=dict(subject.dims),
        inputs=dict(subject.inputs),
        name=subject.name,
        built=folder,
    )


def _errors(
    run: Runner, feeds: Mapping[str, Feed], wants: Mapping[str, Sequence[NDArray[Any]]]
) -> dict[str, Error]:
    return {name: Error.of(run(feed), wants[name]) for name, feed in feeds.items()}


def _families(bundle: Path) -> list[str]:
    """The families of a library's kernels; none where it was not built."""
    file = bundle / "kernels.json"
    if not file.exists():
        return []
    notes = json.loads(file.read_text())["kernels"]
    return sorted({note["family"] for note in notes})
