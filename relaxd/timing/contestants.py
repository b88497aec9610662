"""The processes of engines that are compared: started, asked one at a time, and what their rounds
say of each.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxd.timing import rounds

WORKER = "relaxd.timing.worker"
TOLERANCE = 1e-3
"""The largest difference of outputs, relative to the greater of 1 and their range, that counts as
right.
"""


class Contestant:
    """One worker process."""

    def __init__(self, engine: str, folder: Path, worker: str = WORKER) -> None:
        """Start it and wait until it has loaded the model."""
        self.engine = engine
        self._process = subprocess.Popen(
            [sys.executable, "-m", worker, engine, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # The same packages, wherever this program was started.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            text=True,
        )
        self.pid = self._process.pid
        self.ready = self._answer()

    def ask(self, **request: Any) -> dict[str, Any]:
        """The worker's answer; `{"error": ...}` where the engine failed or its process has died."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        return {"error": f"exit status {self._process.wait()}"}

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@contextlib.contextmanager
def start_workers(
    engines: Sequence[str], folder: Path, worker: str = WORKER
) -> Iterator[list[Contestant]]:
    """The engines' workers, each ready or with its error in `ready`; they end with the context."""
    contestants: list[Contestant] = []
    try:
        for engine in engines:
            contestants.append(Contestant(engine, folder, worker))
        yield contestants
    finally:
        for contestant in contestants:
            contestant.end()


def measure_point(
    contestants: Sequence[Contestant],
    index: int,
    folder: Path,
    *,
    seconds: float,
    count: int,
    reference: str,
) -> dict[str, Any]:
    """`engines`, what each did at one point (see `times_of`, and `difference` to the outputs of the
    engine `reference`, or its error), and `others`, the share of the processors that others used in
    each round.
    """
    outcomes: dict[str, dict[str, Any]] = {one.engine: dict(one.ready) for one in contestants}
    for one in contestants:
        if "error" not in one.ready:
            answer = one.ask(point=index, save=str(outputs_of(folder, one.engine, index)))
            answer.pop("saved", None)
            outcomes[one.engine] |= answer
    racing = [one for one in contestants if "error" not in outcomes[one.engine]]
    done = rounds.in_turns(racing, {"point": index, "seconds": seconds}, count)
    for one in racing:
        outcomes[one.engine] |= times_of(one.engine, done)
        outcomes[one.engine]["difference"] = _difference(folder, one.engine, index, reference)
    return {"engines": outcomes, "others": [round(one.others, 4) for one in done]}


def times_of(engine: str, done: Sequence[rounds.Round]) -> dict[str, Any]:
    """An engine's part of the rounds: each one's median in ms, their median and quartiles, and the
    number of calls; or its error.
    """
    times = [one.milliseconds[engine] for one in done if engine in one.milliseconds]
    if len(times) < len(done):
        errors = (one.errors[engine] for one in done if engine in one.errors)
        return {"error": next(errors, "failed in a round that was not kept")}
    low, middle, high = statistics.quantiles(times, n=4)
    calls = sum(one.calls[engine] for one in done)
    return {"rounds": times, "milliseconds": middle, "low": low, "high": high, "calls": calls}


def outputs_of(folder: Path, engine: str, index: int) -> Path:
    """The file of an engine's outputs at a point."""
    return folder / f"made_{engine}_{index}.npz"


def _difference(folder: Path, engine: str, index: int, reference: str) -> float | None:
    """The greatest difference of the outputs; None without the reference's, or where it has another
    number of them.
    """
    if not outputs_of(folder, reference, index).exists():
        return None
    with (
        np.load(outputs_of(folder, reference, index)) as expected,
        np.load(outputs_of(folder, engine, index)) as outputs,
    ):
        if len(outputs.files) != len(expected.files):
            return None
        return max((_distance(outputs[key], expected[key]) for key in expected.files), default=None)


def _distance(have: NDArray[Any], want: NDArray[Any]) -> float:
    """Relative to the range of what is finite; the largest float where the shapes differ or only
    one of two numbers is finite.
    """
    if have.shape != want.shape:
        return sys.float_info.max
    have, want = have.astype(np.float64), want.astype(np.float64)
    differs = (have != want) & ~(np.isnan(have) & np.isnan(want))
    extent = max(1.0, np.abs(want[np.isfinite(want)]).max(initial=0))
    largest = np.abs(have[differs] - want[differs]).max(initial=0) / extent
    return float(largest) if np.isfinite(largest) else sys.float_info.max
