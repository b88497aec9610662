"""Runs the tasks of a model in a process of its own, which may crash and is ended in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile

from benchmarks.judge.outcome import ENDED, Outcome, Row, Task

_ROOT = Path(__file__).parents[2]


def run_tasks(name: str, tasks: Sequence[Task], seconds: float) -> Iterator[Row]:
    """Yield rows as they come. Where the process ends before its tasks do, the next of them has the
    reason, and another process takes the others.
    """
    left = list(tasks)
    while left:
        ended = ""
        for row in _run(name, left, seconds):
            if isinstance(row, str):
                ended = row
                continue
            left.remove(row.task)
            yield row
        if left:
            yield Row(left.pop(0), Outcome(ENDED, why=ended))


def _run(name: str, tasks: Sequence[Task], seconds: float) -> Iterator[Row | str]:
    """Yield the rows of one process, and last how it ended."""
    command = [sys.executable, "-m", "benchmarks.judge.worker", name]
    with TemporaryFile("w+") as asked, TemporaryFile("w+") as messages:
        asked.writelines(json.dumps(asdict(task)) + "\n" for task in tasks)
        asked.seek(0)
        with subprocess.Popen(
            command,
            cwd=_ROOT,
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            start_new_session=True,
        ) as child:
            yield from _rows(child, seconds)
        messages.seek(0)
        last = (messages.read().strip().splitlines() or [""])[-1]
        yield f"exit status {child.returncode}: {last}"[:300]


def _rows(child: subprocess.Popen[str], seconds: float) -> Iterator[Row]:
    """Yield rows as the process prints them; it is killed with its children after `seconds`."""
    timer = threading.Timer(seconds, os.killpg, (child.pid, signal.SIGKILL))
    timer.start()
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if line.startswith("{"):
                yield Row.from_json(json.loads(line))
    finally:
        timer.cancel()
        if child.poll() is None and sys.exc_info()[0] is not None:
            os.killpg(child.pid, signal.SIGKILL)
