"""Follows a job of a service until it ends."""

from collections.abc import Callable

from relaxd.cli.progress import BuildProgress
from relaxd.client import JobEvent, JobHandle
from relaxd.contract.states import State


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
    with BuildProgress([build["target"] for build in job.builds]) as progress:
        for build in job.refresh().builds:
            if build["state"] == State.QUEUED and build.get("note"):
                progress.say(build["target"], f"queued: {build['note']}")
        for event in job.events(timeout=timeout):
            _show(event, progress, verbose)
            if event.type == "build.finished" and event.target is not None:
                on_finished(event.target)
    return job.refresh().wait()


def _show(event: JobEvent, progress: BuildProgress, verbose: bool) -> None:
    match event:
        case JobEvent(target=str(target), type="build.stage", data={"stage": stage, **rest}):
            message = rest.get("message")
            progress.say(target, f"{stage}: {message}" if message else stage)
        case JobEvent(target=str(target), type="build.queued", data={"reason": reason}):
            progress.say(target, f"queued: {reason}")
        case JobEvent(target=str(target), type="build.finished", data={"state": state, **rest}):
            progress.end(target, state, "from the cache" if rest.get("cached") else "")
        case JobEvent(type="build.log", data={"line": line}) if verbose:
            progress.log(line)
