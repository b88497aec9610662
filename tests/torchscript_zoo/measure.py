"""One model of the zoo: compiled once, loaded as a user does, compared with torch at every size."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import relaxd
from compiler import compile_model
from tests.torchscript_zoo.models import MODELS, Feed, Sizes, feed_of
from tests.zoo.judging import Judged, Outputs, judge, unproven, worst_of

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Point:
    """All outputs at one size, judged as `tests.zoo.judging` says."""

    sizes: Sizes
    worst: float
    is_close: bool


@dataclass(frozen=True)
class Measured:
    """One model's points; `error` where it did not compile, load or run.

    unproven: the positions of outputs that would not show a fault; proves_nothing: whether that is
    all of them.
    """

    name: str
    compile_seconds: float
    points: Sequence[Point]
    unproven: Sequence[str] = field(default=())
    proves_nothing: bool = False
    error: str = ""

    @property
    def is_close(self) -> bool:
        """True if every size is within tolerance, and that says something."""
        stored = all(point.is_close for point in self.points)
        return stored and not self.error and not self.proves_nothing

    def to_json(self) -> dict[str, Any]:
        """The form in the report."""
        return {**asdict(self), "held": self.is_close}


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
            results = [list(loaded.run(feed).values()) for feed in feeds]
        except relaxd.errors.RelaxdError as error:
            return Measured(name, time.monotonic() - started, (), error=f"{error.code}: {error}")
    return judge_run(name, seconds, results, wanted)


def judge_run(
    name: str,
    seconds: float,
    result: Sequence[Sequence[NDArray[Any]]],
    wanted: Sequence[Sequence[NDArray[Any]]],
) -> Measured:
    """Ours beside torch's outputs, by place, at every size of the model."""
    each = [judge(_at_positions(p), _at_positions(q)) for p, q in zip(result, wanted, strict=True)]
    hidden = unproven(each)
    points = [
        Point(sizes, worst_of(outputs), _is_within(outputs))
        for sizes, outputs in zip(MODELS[name].shapes, each, strict=True)
    ]
    return Measured(name, seconds, points, hidden, len(hidden) == len(each[0]))


def _at_positions(outputs: Sequence[NDArray[Any]]) -> Outputs:
    return {str(position): output for position, output in enumerate(outputs)}


def _is_within(outputs: dict[str, Judged]) -> bool:
    return not any(item.wrong for item in outputs.values())


def _torch(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.torchscript_zoo.programs", *arguments], check=True, cwd=ROOT
    )


def _wanted(script: Path, feeds: Sequence[Feed], consts: str) -> list[list[NDArray[Any]]]:
    arguments, created = script.with_name("feeds.npz"), script.with_name("outputs.npz")
    arrays: dict[str, Any] = {
        f"{index}.{name}": array for index, feed in enumerate(feeds) for name, array in feed.items()
    }
    np.savez(arguments, **arrays)
    _torch("run", str(script), str(arguments), str(created), consts)
    with np.load(created) as outputs:
        counts = [
            sum(key.startswith(f"{index}.") for key in outputs) for index in range(len(feeds))
        ]
        return [
            [outputs[f"{index}.{position}"] for position in range(count)]
            for index, count in enumerate(counts)
        ]
