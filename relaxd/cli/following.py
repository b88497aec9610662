"""Follows a job of a service until it ends."""

from relaxd.cli.progress import BuildProgress
from relaxd.client import JobEvent, JobHandle


def follow(job: JobHandle, *, verbose: bool = False) -> JobHandle:
    """Show the job's progress until it ends; the job as it then stands."""
    with BuildProgress([build["target"] for build in job.builds]) as progress:
        for event in job.events():
            _show(event, progress, verbose)
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
