"""The compile process: reads one job from standard input, writes messages to a file descriptor,
prints logs. Started by `isolation.child`.
"""

import argparse
import faulthandler
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TextIO

from compiler.isolation import garbage, output, sandbox
from compiler.isolation.linux.privileges import Shares
from compiler.isolation.linux.visible_paths import VisiblePaths, find_paths, model_files
from compiler.isolation.messages import (
    ChildJob,
    CompileJob,
    Confined,
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
    """Run the job; return 0 when it succeeded, 1 when it failed, 2 when nobody waits for it."""
    options = _options()
    faulthandler.enable()
    job = job_from_json(json.load(sys.stdin))
    shares = Shares(options.memory_bytes, options.file_bytes, options.processes)
    scratch = Path.cwd()
    try:
        confinement = sandbox.confine(
            options.parent,
            _visible_paths(job, scratch, options.cache),
            shares,
            Path(tempfile.mkdtemp(dir=scratch)),
            options.group,
        )
    except sandbox.ParentDied:
        return 2
    os.chdir(scratch)
    garbage.collect_seldom()
    for remark in confinement.remarks:
        print(f"sandbox: {remark}", flush=True)
    # torch would be pulled in by tvm_ffi, at the price of seconds and hundreds of megabytes.
    sys.modules["torch"] = None  # type: ignore[assignment]
    with os.fdopen(options.messages, "w", buffering=1, encoding="utf-8") as stream:
        _send(stream, Confined(confinement.level))
        final = _run(job, stream, confinement, options.unsandboxed_torchscript)
        _send(stream, final)
    return 0 if isinstance(final, Succeeded) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compiler.process", description=__doc__)
    numbers = {
        "messages": "file descriptor that receives one JSON message a line",
        "parent": "process id of the starter; this process ends with it",
        "memory-bytes": "private memory of one process",
        "file-bytes": "size of one file",
        "processes": "how many threads the build may have",
    }
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", type=int, required=True, help=text)
    parser.add_argument("--cache", type=Path, required=True, help="the cache that all builds share")
    parser.add_argument("--group", type=Path, help="the cgroup to enter")
    parser.add_argument(
        "--unsandboxed-torchscript",
        action="store_true",
        help="load TorchScript even where files are not isolated",
    )
    return parser.parse_args()


def _visible_paths(job: ChildJob, scratch: Path, shared_cache: Path) -> VisiblePaths:
    readable, own = [shared_cache], [*model_files(Path(job.model))]
    writable = [scratch]
    if isinstance(job, CompileJob):
        own += [Path(job.samples)] if job.samples else []
        readable += [Path(job.kernels)] if job.kernels else []
        writable += [output.partial_of(job), *([Path(job.dump)] if job.dump else [])]
    return find_paths(tuple(readable), tuple(writable), tuple(own))


def _run(
    job: ChildJob, stream: TextIO, confinement: sandbox.Confinement, trusting: bool
) -> Succeeded | Failed:
    # Imported here: the sandbox needs a process that has no thread but its own yet.
    from compiler import build
    from compiler.bisection import locate
    from compiler.errors import CompileError
    from compiler.ir.files.model_file import refuse_code
    from compiler.process import reports
    from compiler.verify.report import Mismatch

    def on_event(event: Event) -> None:
        _send(stream, event)

    began = time.monotonic()
    try:
        if not (trusting or confinement.keeps_code):
            has_operators = isinstance(job, CompileJob) and bool(job.request.get("operators"))
            refuse_code(Path(job.model), has_operators, confinement.level, confinement.unlimited)
        match job:
            case CompileJob():
                manifest = build.fill(job, on_event, sandbox=confinement.level)
                return Succeeded(manifest.to_json())
            case InspectJob():
                return Succeeded(reports.inspect(job, on_event))
            case FamiliesJob():
                return Succeeded(reports.families(job, on_event))
    except Mismatch as error:
        if not (isinstance(job, CompileJob) and job.reproducer):
            return Failed(error.failure)
        _send(stream, Failing(locate.describe_failure(job, error)))
        seconds = locate.budget(time.monotonic() - began)
        return Failed(locate.locate(job, error, on_event, seconds))
    except CompileError as error:
        return Failed(error.failure)


def _send(stream: TextIO, message: Message) -> None:
    stream.write(json.dumps(message.to_json()) + "\n")


if __name__ == "__main__":
    sys.exit(main())
