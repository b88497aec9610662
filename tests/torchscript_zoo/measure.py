"""One model of the zoo: compiled once, loaded as a user does, compared with torch at every size."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import relaxd
from compiler import compile_model
from tests.torchscript_zoo.models import MODELS, Feed, Sizes, feed_of

ROOT = Path(__file__).parents[2]
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Point:
    """The worst |ours - torch's| / max(1, |torch's|) of all outputs at one size; infinite where a
    shape or dtype differs.
    """

    sizes: Sizes
    worst: float

    @property
    def held(self) -> bool:
        """Whether it is within tolerance."""
        return self.worst <= TOLERANCE


@dataclass(frozen=True)
class Measured:
    """One model's points; `error` where it did not compile, load or run."""

    name: str
    compile_seconds: float
    points: Sequence[Point]
    error: str = ""

    @property
    def held(self) -> bool:
        """Whether every size is within tolerance."""
        return not self.error and all(point.held for point in self.points)

    def to_json(self) -> dict[str, Any]:
        """The form in the report."""
        return {**asdict(self), "held": self.held}


def measure(name: str) -> Measured:
    """Raises CalledProcessError where torch itself fails; what ours fails at is in the result."""
    model, started = MODELS[name], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torchscript-zoo-") as folder:
        script, bundle = Path(folder) / "model.pt", Path(folder) / "bundle"
        _torch("save", model.program, str(script))
        feeds = [feed_of(model, sizes) for sizes in model.shapes]
        wanted = _wanted(script, feeds, json.dumps(dict(model.consts)))
        try:
            started = time.monotonic()
            compile_model(
                script,
                output=bundle,
                dims=model.dims,
                inputs=model.inputs,
                consts=model.consts,
                options={"verify": False, "profile": False},
            )
            seconds = time.monotonic() - started
            loaded = relaxd.load(bundle)
            found = [list(loaded.run(feed).values()) for feed in feeds]
        except relaxd.errors.RelaxdError as error:
            return Measured(name, time.monotonic() - started, (), f"{error.code}: {error}")
    return Measured(
        name,
        seconds,
        [
            Point(sizes, _worst(p, q))
            for sizes, p, q in zip(model.shapes, found, wanted, strict=True)
        ],
    )


def _torch(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.torchscript_zoo.programs", *arguments], check=True, cwd=ROOT
    )


def _wanted(script: Path, feeds: Sequence[Feed], consts: str) -> list[list[NDArray[Any]]]:
    given, made = script.with_name("feeds.npz"), script.with_name("outputs.npz")
    np.savez(
        given,
        **{
            f"{index}.{name}": array
            for index, feed in enumerate(feeds)
            for name, array in feed.items()
        },
    )  # type: ignore[arg-type]
    _torch("run", str(script), str(given), str(made), consts)
    with np.load(made) as outputs:
        counts = [
            sum(key.startswith(f"{index}.") for key in outputs) for index in range(len(feeds))
        ]
        return [
            [outputs[f"{index}.{place}"] for place in range(count)]
            for index, count in enumerate(counts)
        ]


def _worst(found: Sequence[NDArray[Any]], wanted: Sequence[NDArray[Any]]) -> float:
    if [(p.shape, p.dtype) for p in found] != [(q.shape, q.dtype) for q in wanted]:
        return float("inf")
    return max(_difference(p, q) for p, q in zip(found, wanted, strict=True))


def _difference(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Infinite where one of both is not a number."""
    worst = float(
        np.max(np.abs(found.astype("f8") - wanted) / np.maximum(1, np.abs(wanted)), initial=0)
    )
    return worst if np.isfinite(worst) else float("inf")
