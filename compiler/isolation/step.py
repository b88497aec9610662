"""Runs a step that may crash, hang or eat memory in a process of its own, which appends records to
a file as it goes.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.isolation import garbage, sandbox
from compiler.isolation.linux import privileges
from compiler.isolation.work_time import clock_work, end_after
from compiler.toolchain import cache

Record = dict[str, Any]
OnRecords = Callable[[list[Record]], None]

HANGING = 10.0
"""How many times its seconds of computing a task may take before it counts as one that hangs."""
TIME_BUDGET, HUNG = "the time budget", "it hangs"
_TAIL = 2000
_GRACE_SECONDS, _POLL_SECONDS = 5.0, 0.25
_NOTHING: Mapping[str, str] = {}


def _ignore(records: list[Record]) -> None:
    pass


def never() -> bool:
    """Nobody cancels the task."""
    return False


class TaskCancelled(Exception):
    """Nobody wants the outcome of the task any more."""


@dataclass(frozen=True)
class TaskLimits:
    """seconds: in which the task may compute, as `clock_work` counts them: as many on a busy
    machine as on an idle one; None where other processes do its work, or its time is that of
    people. elapsed: seconds of wall-clock time after which it is killed whatever it does.
    memory_bytes: what its private memory may grow to before allocations fail.
    """

    memory_bytes: int
    elapsed: float
    seconds: float | None = None

    @classmethod
    def of_work(cls, seconds: float, memory_bytes: int) -> "TaskLimits":
        """Seconds of computing, and so much more time that only a task that hangs is cut by it."""
        return cls(memory_bytes, HANGING * seconds, seconds)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a task: its records, whether it ran to its end, and if not, why; `output` is
    the end of what it printed.

    late: a limit of time ended it. seconds: how long it computed, or how long it ran where it has
    no limit of that or died; no more than its limit.
    """

    records: list[Record]
    ended: bool
    reason: str | None = None
    output: str = ""
    late: bool = False
    seconds: float = 0.0


def run_task(
    module: str,
    spec: Record,
    records: Path,
    limits: TaskLimits,
    *,
    writable: tuple[Path, ...] = (),
    environment: Mapping[str, str] = _NOTHING,
    on_records: OnRecords = _ignore,
    cancelled: Callable[[], bool] = never,
) -> Outcome:
    """Run `python -m MODULE`, whose main calls `serve`, within the limits.

    writable: folders that it may write to beside that of the records. environment: variables that
    it has beside ours. on_records: called with those that are new, a moment after the task made
    them. cancelled: asked several times a second; raises TaskCancelled where it says so.
    """
    command = [sys.executable, "-P", "-m", module, str(records), str(limits.memory_bytes)]
    command += [str(limits.elapsed), str(limits.seconds or 0), *map(str, writable)]
    # Where the packages are not installed but lie in a checkout, the task finds them there too.
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    began = time.monotonic()
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={
            **os.environ,
            **environment,
            **_own(records.parent),
            "PYTHONPATH": os.pathsep.join(paths),
        },
    ) as process:
        try:
            output = _communicate(process, spec, records, limits, on_records, cancelled)
        except BaseException:
            process.kill()
            raise
    ran = time.monotonic() - began
    return _outcome(process.returncode, records, limits, output[-_TAIL:], ran)


def _communicate(
    process: "subprocess.Popen[str]",
    spec: Record,
    records: Path,
    limits: TaskLimits,
    on_records: OnRecords,
    cancelled: Callable[[], bool],
) -> str:
    """Collect what the task prints until it ends; raises TaskCancelled."""
    text: str | None = json.dumps(spec)
    until, tail = time.monotonic() + limits.elapsed + _GRACE_SECONDS, _Tail(records)
    while True:
        if cancelled():
            raise TaskCancelled
        try:
            output, _ = process.communicate(text, timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            text = None
            if time.monotonic() > until:
                process.kill()
        else:
            tail.read(on_records)
            return output
        tail.read(on_records)


class _Tail:
    """Reads the records that a task appends to its file."""

    def __init__(self, records: Path) -> None:
        self._records = records
        self._read = 0

    def read(self, on_records: OnRecords) -> None:
        """Pass on the records that are new, if there are some."""
        new = [] if on_records is _ignore else read_records(self._records)[self._read :]
        self._read += len(new)
        if new:
            on_records(new)


def _outcome(status: int, records: Path, limits: TaskLimits, output: str, ran: float) -> Outcome:
    """status: as `subprocess.Popen.returncode`; ran: seconds of wall-clock time."""
    known = read_records(records)
    if status == -signal.SIGPROF and limits.seconds is not None:
        reason = f"{TIME_BUDGET} of {limits.seconds:.0f} s of processor time ran out"
        return Outcome(known, False, reason, output, True, limits.seconds)
    if status == -signal.SIGALRM or (status == -signal.SIGKILL and ran > limits.elapsed):
        return Outcome(known, False, _explain_elapsed(limits), output, True, limits.seconds or ran)
    seconds = _read_seconds(records, limits.seconds or ran, ran)
    if status == 0:
        return Outcome(known, True, None, output, seconds=seconds)
    if status < 0:
        reason = f"died of {signal.Signals(-status).name}"
    else:
        lines = [line for line in output.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"ended with status {status}"
    return Outcome(known, False, reason, output, seconds=seconds)


def _seconds_file(records: Path) -> Path:
    """Where a task writes at its end for how many seconds it computed."""
    return records.with_name(f"{records.name}.seconds")


def _read_seconds(records: Path, most: float, ran: float) -> float:
    """For how many seconds the task says that it computed, or else those that it ran; `most` at
    most, and no less than 0, whatever a task writes.
    """
    try:
        seconds = float(_seconds_file(records).read_text())
    except (OSError, ValueError):
        seconds = ran
    return min(max(seconds, 0.0), most) if math.isfinite(seconds) else min(ran, most)


def _explain_elapsed(limits: TaskLimits) -> str:
    if limits.seconds is None:
        return f"{TIME_BUDGET} of {limits.elapsed:.0f} s ran out"
    return (
        f"{HUNG}: {limits.elapsed:.0f} s passed, and it had not computed for {limits.seconds:.0f}"
    )


def _own(folder: Path) -> dict[str, str]:
    """Libraries keep caches in the first two: the task can write nowhere else. Our own cache, whose
    place follows from HOME, stays where it is.
    """
    own_cache = {cache.VARIABLE: str(cache.directory())}
    return {"HOME": str(folder), "TMPDIR": str(folder), **own_cache}


def serve(handle: Callable[[Record, Callable[[Record], None]], None]) -> None:
    """The task's main: calls `handle(spec, record)`, where `record` appends one document.

    The task may write to the records' folder and those it is given alone, and reaches no network
    and no other process.
    """
    records, memory_bytes = Path(sys.argv[1]), int(sys.argv[2])
    elapsed, seconds = map(float, sys.argv[3:5])
    privileges.end_with_parent()
    sandbox.confine_further((records.parent, *map(Path, sys.argv[5:])))
    # Where the sandbox refuses all signals to others, our parent could not end us.
    signal.setitimer(signal.ITIMER_REAL, elapsed)
    if seconds:
        end_after(seconds)
    privileges.limit_memory(memory_bytes)
    garbage.collect_seldom()
    sys.modules["torch"] = None  # type: ignore[assignment]
    with records.open("a", encoding="utf-8", buffering=1) as stream:
        handle(json.load(sys.stdin), lambda record: print(json.dumps(record), file=stream))
    if seconds:
        _seconds_file(records).write_text(str(clock_work()()))


def read_records(records: Path) -> list[Record]:
    """The records of a task, none without the file. Complete lines only: a task that was killed may
    have left half of one.
    """
    if not records.exists():
        return []
    return [
        json.loads(line)
        for line in records.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]
