"""Runs a step that may crash, hang or eat memory in a process of its own, which appends records to
a file as it goes.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.isolation import garbage, sandbox
from compiler.isolation.linux import privileges
from compiler.toolchain import cache

Record = dict[str, Any]

_TAIL = 2000
_GRACE_SECONDS = 5.0
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a task: its records, whether it ran to its end, and if not, why; `output` is
    the end of what it printed.
    """

    records: list[Record]
    ended: bool
    reason: str | None = None
    output: str = ""


def run_task(
    module: str,
    spec: Record,
    records: Path,
    *,
    seconds: float,
    memory_bytes: int,
    writable: tuple[Path, ...] = (),
    environment: Mapping[str, str] = _NOTHING,
) -> Outcome:
    """Run `python -m MODULE`, whose main calls `serve`; kills it after `seconds`.

    memory_bytes: what its private memory may grow to before allocations fail. writable: folders
    that it may write to beside that of the records. environment: variables that it has beside
    ours.
    """
    command = [sys.executable, "-P", "-m", module, str(records), str(memory_bytes), str(seconds)]
    command += map(str, writable)
    # Where the packages are not installed but lie in a checkout, the task finds them there too.
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(spec),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds + _GRACE_SECONDS,
            check=False,
            env={
                **os.environ,
                **environment,
                **_own(records.parent),
                "PYTHONPATH": os.pathsep.join(paths),
            },
        )
    except subprocess.TimeoutExpired as error:
        output = (
            error.stdout.decode(errors="replace")
            if isinstance(error.stdout, bytes)
            else error.stdout or ""
        )
        return _out_of_time(records, seconds, output[-_TAIL:])
    output = done.stdout[-_TAIL:]
    if done.returncode == -signal.SIGALRM:
        return _out_of_time(records, seconds, output)
    if done.returncode < 0:
        return Outcome(
            read_records(records), False, f"died of {signal.Signals(-done.returncode).name}", output
        )
    if done.returncode:
        last = next(
            (line for line in reversed(output.splitlines()) if line.strip()),
            f"ended with status {done.returncode}",
        )
        return Outcome(read_records(records), False, last, output)
    return Outcome(read_records(records), True, None, output)


def _own(folder: Path) -> dict[str, str]:
    """Libraries keep caches in the first two: the task can write nowhere else. Our own cache, whose
    place follows from HOME, stays where it is.
    """
    own_cache = {cache.VARIABLE: str(cache.directory())}
    return {"HOME": str(folder), "TMPDIR": str(folder), **own_cache}


def _out_of_time(records: Path, seconds: float, output: str) -> Outcome:
    return Outcome(
        read_records(records), False, f"the time budget of {seconds:.0f} s ran out", output
    )


def serve(handle: Callable[[Record, Callable[[Record], None]], None]) -> None:
    """The task's main: calls `handle(spec, record)`, where `record` appends one document.

    The task may write to the records' folder and those it is given alone, and reaches no network
    and no other process.
    """
    records, memory_bytes, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    privileges.end_with_parent()
    sandbox.confine_further((records.parent, *map(Path, sys.argv[4:])))
    # Where the sandbox refuses all signals to others, our parent could not end us.
    signal.setitimer(signal.ITIMER_REAL, seconds)
    privileges.limit_memory(memory_bytes)
    garbage.collect_seldom()
    sys.modules["torch"] = None  # type: ignore[assignment]
    with records.open("a", encoding="utf-8", buffering=1) as stream:
        handle(json.load(sys.stdin), lambda record: print(json.dumps(record), file=stream))


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
