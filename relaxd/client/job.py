"""A job as a client sees it: its state, its events, its artifacts."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from relaxd.client.errors import JobFailed, PullError, WaitTimeout
from relaxd.client.transport import ATTEMPTS, BUSY, FIRST_PAUSE, Transport
from relaxd.contract.states import State
from relaxd.errors import ServerError, suggest

if TYPE_CHECKING:
    from relaxd.client.build import Build
    from relaxd.client.pull import Report

LONG_POLL = 20.0


@dataclass(frozen=True)
class JobEvent:
    """Something that happened: `seq` orders the events of a job, `target` is None for the job as a
    whole.
    """

    seq: int
    type: str
    time: str
    target: str | None
    data: dict[str, Any]


class JobHandle:
    """A job of a service; `document` is its wire form as last seen."""

    def __init__(self, transport: Transport, document: dict[str, Any]) -> None:
        self._transport = transport
        self.document = document

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r}, {self.state.value})"

    @property
    def id(self) -> str:
        """The job's id."""
        return str(self.document["id"])

    @property
    def state(self) -> State:
        """The state as last seen; `refresh` asks again."""
        return State(self.document["state"])

    @property
    def builds(self) -> list[dict[str, Any]]:
        """One document a target: `state`, `stage`, `cached`, `artifact`, `error`, `profile`,
        `numerics`.
        """
        return list(self.document["builds"])

    @property
    def results(self) -> tuple["Build", ...]:
        """The builds, typed, as last seen."""
        from relaxd.client.build import Build

        return tuple(map(Build.from_json, self.document["builds"]))

    @property
    def path(self) -> str:
        """The job's path on the service."""
        return f"/v1/jobs/{self.id}"

    def build(self, target: str | None = None) -> dict[str, Any]:
        """The build for `target`, which may be left out where there is but one; raises PullError
        naming the targets.
        """
        builds = {build["target"]: build for build in self.builds}
        if target is None and len(builds) == 1:
            return dict(next(iter(builds.values())))
        if target is None or target not in builds:
            why = (
                f"job {self.id} has several targets"
                if target is None
                else f"job {self.id} has no target {target!r}"
            )
            raise PullError(
                why, hint=suggest(target or "", builds, f"name one: {', '.join(builds)}")
            )
        return dict(builds[target])

    def refresh(self) -> "JobHandle":
        """Ask the service for the job as it stands."""
        self.document = self._transport.json("GET", self.path)
        return self

    def wait(self, timeout: float | None = None) -> "JobHandle":
        """Return once the job is over, whatever its outcome; raises WaitTimeout after `timeout`
        seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.state.terminal:
            left = LONG_POLL if deadline is None else min(LONG_POLL, deadline - time.monotonic())
            if left <= 0:
                raise self._overdue(timeout)
            self.document = self._transport.json(
                "GET",
                self.path,
                params={"wait": f"{left:.3f}"},
                timeout=left + self._transport.timeout,
            )
        return self

    def _overdue(self, timeout: float | None) -> WaitTimeout:
        return WaitTimeout(
            f"job {self.id} is still {self.state.value} after {timeout or 0:g} seconds",
            hint=f"the job continues: `relaxd jobs follow {self.id}` waits for it, "
            f"`relaxd jobs cancel {self.id}` stops it",
        )

    def read(self) -> dict[str, Any]:
        """The job's document as it now stands; leaves `document` as it is."""
        document: dict[str, Any] = self._transport.json("GET", self.path)
        return document

    def cancel(self) -> "JobHandle":
        """Stop queued and running builds; a job that is over stays as it is."""
        self.document = self._transport.json("POST", f"{self.path}:cancel")
        return self

    def events(self, after: int = 0, timeout: float | None = None) -> Iterator[JobEvent]:
        """Every event with `seq` above `after`, past ones first, then as they happen, until the job
        is over.

        A stream that breaks off, and a service that is busy, are asked again for what is left;
        raises ServerUnreachable or ServerError when that fails repeatedly, WaitTimeout where the
        job is still under way after `timeout` seconds.
        """
        failures, deadline = 0, _Deadline(timeout)
        while True:
            try:
                with self._transport.stream(
                    "GET",
                    f"{self.path}/events",
                    headers={"Last-Event-ID": str(after)},
                    timeout=deadline.within(self._transport.timeout),
                ) as answer:
                    if answer.status_code == httpx.codes.NO_CONTENT:
                        return
                    for event in _parse(deadline.read(answer.iter_lines())):
                        failures, after = 0, event.seq
                        yield event
                if not deadline.passed:
                    continue
            except httpx.RequestError as error:
                failures += 1
                if failures == ATTEMPTS and not deadline.passed:
                    raise self._transport.translate(error) from error
            except ServerError as error:
                failures += 1
                if failures == ATTEMPTS or error.status not in BUSY:
                    raise
            if deadline.passed:
                raise self._overdue(timeout)
            time.sleep(FIRST_PAUSE * 2**failures)

    def logs(self, target: str | None = None) -> str:
        """The lines that the compiler printed, of one target or of all."""
        return self._transport.request(
            "GET", f"{self.path}/logs", params={"target": target} if target else None
        ).text

    def bundle(self, target: str | None = None, *, best: bool = False) -> str:
        """The digest of the bundle for `target`, or of the best that this machine can run.

        Raises JobFailed if that build did not succeed, PullError if this machine can run none.
        """
        from relaxd.client.best import choose
        from relaxd.client.reference import BUNDLES

        if best:
            digests = {
                build["target"]: build["artifact"]["digest"]
                for build in self.refresh().builds
                if build.get("artifact")
            }
            return choose(self._transport, self._transport.repository(BUNDLES), digests)
        build = self.refresh().build(target)
        if not build.get("artifact"):
            raise failure_of(build)
        return str(build["artifact"]["digest"])

    def pull(
        self,
        target: str | None = None,
        directory: str | Path = "out",
        *,
        best: bool = False,
        report: "Report | None" = None,
    ) -> Path:
        """Fetch the bundle for `target`, or the best that this machine can run, into `directory`;
        raises as `bundle`.
        """
        from relaxd.client.pull import pull
        from relaxd.client.reference import BUNDLES

        digest = self.bundle(target, best=best)
        return pull(
            self._transport,
            self._transport.repository(BUNDLES),
            digest,
            Path(directory),
            report=report,
        )

    def pull_dump(self, target: str | None = None, directory: str | Path = "out.dump") -> Path:
        """Fetch the compiler's dump of the build for `target`, of a job with `options.dump`, into
        `directory`.

        Raises JobFailed if that build did not succeed, PullError if the service kept no dump.
        """
        from relaxd.client.pull import pull
        from relaxd.client.reference import BUNDLES

        build = self.refresh().build(target)
        if not build.get("artifact"):
            raise failure_of(build)
        if not build.get("dump"):
            raise PullError(
                f"job {self.id} has no dump of {build['target']}",
                hint="compile with the option dump=true",
            )
        return pull(
            self._transport,
            self._transport.repository(BUNDLES),
            build["dump"]["digest"],
            Path(directory),
        )

    def pull_reproducer(
        self, target: str | None = None, directory: str | Path = "out.reproducer"
    ) -> Path:
        """Fetch into `directory` the few nodes and inputs that show why the build for `target`
        failed with `verify.mismatch`; raises PullError for any other build.
        """
        from relaxd.client.pull import pull
        from relaxd.client.reference import BUNDLES

        build = self.refresh().build(target)
        digest = reproducer_of(build)
        if digest is None:
            raise PullError(
                f"job {self.id} has no reproducer of {build['target']}",
                hint="a build has one that failed with verify.mismatch",
            )
        return pull(self._transport, self._transport.repository(BUNDLES), digest, Path(directory))


class _Deadline:
    """A moment so many seconds from now, or never; lines are checked against it as they come, the
    service's heartbeats among them.
    """

    def __init__(self, timeout: float | None) -> None:
        self._until = None if timeout is None else time.monotonic() + timeout

    @property
    def passed(self) -> bool:
        """True if the moment is over."""
        return self._until is not None and time.monotonic() >= self._until

    def within(self, seconds: float) -> float:
        """So many seconds, or what is left."""
        if self._until is None:
            return seconds
        return max(0.01, min(seconds, self._until - time.monotonic()))

    def read(self, lines: Iterator[str]) -> Iterator[str]:
        """Yield lines until the deadline has passed."""
        for line in lines:
            if self.passed:
                return
            yield line


def reproducer_of(build: dict[str, Any]) -> str | None:
    """The digest of what shows a mismatch of the build again, None where there is none."""
    details = (build.get("error") or {}).get("details") or {}
    digest: str | None = (details.get("reproducer") or {}).get("digest")
    return digest


def failure_of(build: dict[str, Any]) -> JobFailed:
    """The error of a build that has no artifact."""
    failure = build.get("error") or {}
    state = State(build["state"]).value.replace("_", " ")
    message = failure.get("message") or f"the build for {build['target']} is {state}"
    return JobFailed(message, failure=failure, hint=failure.get("hint"))


def _parse(lines: Iterator[str]) -> Iterator[JobEvent]:
    """Events of a `text/event-stream`; comments and unknown fields are skipped (WHATWG HTML,
    section 9.2).
    """
    data: list[str] = []
    for line in lines:
        field, _, value = line.partition(":")
        if field == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            document = json.loads("\n".join(data))
            data = []
            yield JobEvent(
                document["seq"],
                document["type"],
                document["time"],
                document.get("target"),
                document["data"],
            )
