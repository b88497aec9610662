"""Starts the search after a mismatch, and adds what it found to the build's failure."""

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compiler.bisection import reproducer
from compiler.bisection.findings import sentence
from compiler.isolation.messages import CompileJob, Event, Progress
from compiler.isolation.step import Outcome, TaskLimits, run_task
from compiler.toolchain import cache
from compiler.verify.report import Mismatch
from relaxd.contract.failures import Failure
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage

TASK = "compiler.bisection.task"

_MEMORY_BYTES = 8 << 30
_SHARE, _MOST_SECONDS = 0.9, 900.0


def budget(build_seconds: float) -> float:
    """How many seconds a search may take after a build that took so many: fewer, as what is known
    without it is that the library is wrong.
    """
    return min(_SHARE * build_seconds, _MOST_SECONDS)


def describe_failure(job: CompileJob, error: Mismatch) -> Failure:
    """The failure whose reproducer is the whole model at the inputs that the build left there."""
    folder = _reproducer(job)
    failure = dataclasses.replace(
        error.failure, details={**error.failure.details, "reproducer": str(folder)}
    )
    _describe(job, {"message": failure.message})
    return failure


def locate(
    job: CompileJob, error: Mismatch, on_event: Callable[[Event], None], seconds: float
) -> Failure:
    """The failure with the first node that departs and the least model that shows it, both as far
    as they are known after so many seconds.
    """
    on_event(Progress(Stage.VERIFY, "searching for the first node that departs"))
    spec = {"job": job.to_json(), "departing": list(error.departing)}
    cache.directory().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="relaxd-search-") as scratch:
        outcome = run_task(
            TASK,
            spec,
            Path(scratch) / "records.jsonl",
            TaskLimits(_MEMORY_BYTES, seconds),
            # It replaces its folder by renames, and links the parts that it tries.
            writable=(_reproducer(job).parent, cache.directory()),
        )
    return _complete(job, describe_failure(job, error), outcome)


def _complete(job: CompileJob, failure: Failure, outcome: Outcome) -> Failure:
    finding: dict[str, Any] = outcome.records[-1] if outcome.records else {}
    stopped = None if outcome.ended else outcome.reason
    message = f"{failure.message}; {sentence(finding, stopped)}"
    bisection = {**finding, **({"stopped": stopped} if stopped else {})}
    _describe(job, {**finding, "message": message})
    return dataclasses.replace(
        failure,
        message=message,
        node=finding.get("node"),
        op=finding.get("op"),
        details={**failure.details, "bisection": bisection},
    )


def _describe(job: CompileJob, findings: dict[str, Any]) -> None:
    """Describe the reproducer, unless it is a part of the model, which the search describes."""
    folder = _reproducer(job)
    reproducer.settle(folder)
    if not (folder / reproducer.MODEL).exists():
        reproducer.describe(folder, CompileRequest.from_json(job.request), job.target, findings)


def _reproducer(job: CompileJob) -> Path:
    assert job.reproducer is not None
    return Path(job.reproducer)
