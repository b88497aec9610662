"""The compile process: reads one job from standard input, writes messages to a file descriptor,
prints logs. Started by `process`.
"""

import argparse
import faulthandler
import json
import os
import sys
import time
from typing import TextIO

from compiler.isolation import sandbox
from compiler.isolation.messages import (
    CompileJob,
    Event,
    Failed,
    Failing,
    FamiliesJob,
    InspectJob,
    Message,
    Succeeded,
    job_from_json,
)


def main() -> int:
    """0 when the job succeeded, 1 when it failed, 2 when nobody waits for it."""
    parser = argparse.ArgumentParser(prog="python -m compiler", description=__doc__)
    parser.add_argument(
        "--messages",
        type=int,
        required=True,
        help="file descriptor that receives one JSON message a line",
    )
    parser.add_argument(
        "--parent",
        type=int,
        required=True,
        help="process id of the starter; this process ends with it",
    )
    options = parser.parse_args()
    faulthandler.enable()
    try:
        for remark in sandbox.confine(options.parent):
            print(f"sandbox: {remark}", flush=True)
    except sandbox.ParentDied:
        return 2
    # torch would be pulled in by tvm_ffi, at the price of seconds and hundreds of megabytes.
    sys.modules["torch"] = None  # type: ignore[assignment]
    with os.fdopen(options.messages, "w", buffering=1, encoding="utf-8") as stream:
        final = _run(json.load(sys.stdin), stream)
        _send(stream, final)
    return 0 if isinstance(final, Succeeded) else 1


def _run(document: dict[str, object], stream: TextIO) -> Succeeded | Failed:
    # Imported here: the sandbox needs a process that has no thread but its own yet.
    from compiler import build
    from compiler.bisection import locate
    from compiler.errors import CompileError
    from compiler.verify.report import Mismatch

    def on_event(event: Event) -> None:
        _send(stream, event)

    job, began = job_from_json(document), time.monotonic()
    try:
        match job:
            case CompileJob():
                return Succeeded(build.build(job, on_event).to_json())
            case InspectJob():
                return Succeeded(build.inspect(job, on_event))
            case FamiliesJob():
                return Succeeded(build.families(job, on_event))
    except Mismatch as error:
        if not (isinstance(job, CompileJob) and job.reproducer):
            return Failed(error.failure)
        _send(stream, Failing(locate.unlocated(job, error)))
        seconds = locate.budget(time.monotonic() - began)
        return Failed(locate.located(job, error, on_event, seconds))
    except CompileError as error:
        return Failed(error.failure)


def _send(stream: TextIO, message: Message) -> None:
    stream.write(json.dumps(message.to_json()) + "\n")


if __name__ == "__main__":
    sys.exit(main())
