"""Follows a job of a service until it ends."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from relaxd.cli.progress import BuildProgress
from relaxd.client import JobEvent, JobHandle
from relaxd.contract.states import Stage, State
from relaxd.errors import RelaxdError

LOOK_S = 2.0
"""Seconds between two looks at why a build is still queued."""


def _nothing(target: str) -> None:
    pass


def follow(
    job: JobHandle,
    *,
    verbose: bool = False,
    timeout: float | None = None,
    on_finished: Callable[[str], None] = _nothing,
) -> JobHandle:
    """Show the job's progress until it ends; the job as it then stands.

    on_finished: gets each target as soon as its build has ended. Raises WaitTimeout after `timeout`
    seconds.
    """
    targets = [build["target"] for build in job.builds]
    with BuildProgress(targets, tuple(Stage)) as progress, _explain_waits(job, progress):
        for event in job.events(timeout=timeout):
            _show(event, progress, verbose)
            if event.type == "build.finished" and event.target is not None:
                on_finished(event.target)
    return job.refresh().wait()


@contextmanager
def _explain_waits(job: JobHandle, progress: BuildProgress) -> Iterator[None]:
    """Say why builds are queued, at once and when that changes, until none of them is any more."""
    ended = threading.Event()

    def show() -> None:
        reported: dict[str, str] = {}
        while True:
            with suppress(RelaxdError):  # whoever follows the events meets it, too
                queued = [b for b in job.read()["builds"] if b["state"] == State.QUEUED]
                if not queued:
                    return
                for build in queued:
                    target, note = build["target"], build.get("note")
                    if note and reported.get(target) != note and not ended.is_set():
                        reported[target] = note
                        progress.say(target, f"queued: {note}")
            if ended.wait(LOOK_S):
                return

    thread = threading.Thread(target=show, name="why-queued", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(event: JobEvent, progress: BuildProgress, verbose: bool) -> None:
    match event:
        case JobEvent(target=str(target), type="build.stage", data={"stage": _} as step):
            progress.show_step(target, step)
        case JobEvent(target=str(target), type="build.started", data=start):
            progress.start(target, start.get("expected_seconds"))
        case JobEvent(target=str(target), type="build.queued", data={"reason": reason}):
            progress.say(target, f"queued: {reason}")
        case JobEvent(target=str(target), type="build.finished", data={"state": state, **rest}):
            progress.end(target, state, "from the cache" if rest.get("cached") else "")
        case JobEvent(type="build.log", data={"line": line}) if verbose:
            progress.log(line)
