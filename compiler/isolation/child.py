"""Runs one job in a fresh, confined, killable process, and turns however it ends into a result or a
typed error.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from compiler.errors import (
    CompileCancelled,
    CompileCrashed,
    CompileError,
    CompileOutOfMemory,
    CompileTimeout,
)
from compiler.isolation.line_splitter import Lines
from compiler.isolation.messages import (
    ChildJob,
    CompileJob,
    Event,
    Failed,
    Failing,
    Log,
    StageStarted,
    Succeeded,
    message_from_json,
)
from compiler.toolchain import cache
from relaxd.contract.manifest import Manifest
from relaxd.contract.states import Stage

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0
_LOG_LINE_BYTES = 4096
_LOG_LINES = 20_000
_MESSAGE_BYTES = 256 << 20
_TAIL_LINES = 20
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", cache.VARIABLE)


@dataclass(frozen=True)
class Limits:
    """Wall-clock seconds of the whole job; bytes of resident memory of all its processes
    together.
    """

    seconds: float = 3600.0
    memory_bytes: int = 16 << 30


def run_child(
    job: ChildJob,
    *,
    on_event: Callable[[Event], None] = lambda event: None,
    cancelled: Callable[[], bool] = lambda: False,
    limits: Limits | None = None,
    command: Sequence[str] | None = None,
) -> Manifest | dict[str, Any]:
    """The manifest of a CompileJob, whose bundle is then in `job.output`, or the report of an
    InspectJob or a FamiliesJob.

    on_event, cancelled: called in this thread, the latter several times a second.
    command: what to run in place of `python -m compiler`; it gets the same arguments and standard
    input. Raises CompileError; no process and no partial bundle is left behind, whatever is raised.
    """
    with tempfile.TemporaryDirectory(prefix="relaxd-", ignore_cleanup_errors=True) as scratch:
        child = _Child(
            command or (sys.executable, "-P", "-m", "compiler"), job, Path(scratch), on_event
        )
        try:
            result = child.watch(cancelled, limits or Limits())
        finally:
            child.kill()
            if isinstance(job, CompileJob):
                shutil.rmtree(partial_of(job), ignore_errors=True)
    return Manifest.from_json(result) if isinstance(job, CompileJob) else result


def partial_of(job: CompileJob) -> Path:
    """Where the bundle grows until it is complete: beside the output, so that a rename publishes
    it.
    """
    output = Path(job.output)
    return output.with_name(f".{output.name}.partial")


class _Child:
    """The process, its two streams, and what has been heard from it so far."""

    def __init__(
        self,
        command: Sequence[str],
        job: ChildJob,
        scratch: Path,
        on_event: Callable[[Event], None],
    ) -> None:
        self._on_event = on_event
        self._stage = Stage.LOAD
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._logged = 0
        self._final: Succeeded | Failed | None = None
        self._failing: Failing | None = None
        self._messages = Lines(_MESSAGE_BYTES)
        self._log = Lines(_LOG_LINE_BYTES)
        source = scratch / "job.json"
        source.write_text(json.dumps(job.to_json()))
        reader, writer = os.pipe()
        try:
            with source.open("rb") as stdin:
                self._process = subprocess.Popen(
                    [*command, "--messages", str(writer), "--parent", str(os.getpid())],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(writer,),
                    start_new_session=True,
                    cwd=scratch,
                    env=_environment(scratch),
                )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        assert self._process.stdout is not None
        self._streams = selectors.DefaultSelector()
        for descriptor, take in (
            (reader, self._take_messages),
            (self._process.stdout.fileno(), self._take_log),
        ):
            os.set_blocking(descriptor, False)
            self._streams.register(descriptor, selectors.EVENT_READ, take)
        self._reader = reader

    def watch(self, cancelled: Callable[[], bool], limits: Limits) -> dict[str, Any]:
        """The final document; raises what ended the process otherwise, or the failure that it told
        before.
        """
        try:
            return self._watch(cancelled, limits)
        except (CompileTimeout, CompileOutOfMemory, CompileCrashed) as error:
            if self._failing is None:
                raise
            raise CompileError.from_failure(self._failing.failure) from error

    def _watch(self, cancelled: Callable[[], bool], limits: Limits) -> dict[str, Any]:
        deadline = time.monotonic() + limits.seconds
        while self._final is None and self._process.poll() is None:
            self._pump(_POLL_SECONDS)
            if cancelled():
                raise CompileCancelled(
                    "the build was cancelled", reason="cancelled", stage=self._stage
                )
            if time.monotonic() > deadline:
                raise CompileTimeout(
                    f"the build ran past its limit of {limits.seconds:g} s",
                    reason="timeout",
                    stage=self._stage,
                    hint="raise the time limit, or narrow the dims",
                    seconds=limits.seconds,
                )
            self._check_memory(limits.memory_bytes)
        self._drain()
        match self._final:
            case Succeeded(result):
                return result
            case Failed(failure):
                raise CompileError.from_failure(failure)
        raise self._crash()

    def kill(self) -> None:
        """End the whole process group and release the streams; idempotent."""
        descendants = self._family()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._streams.close()
        if self._process.stdout and not self._process.stdout.closed:
            self._process.stdout.close()
            os.close(self._reader)

    def _family(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _check_memory(self, limit: int) -> None:
        resident = 0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess):
                resident += process.memory_info().rss
        if resident > limit:
            raise CompileOutOfMemory(
                f"the build's processes grew to {resident >> 20} MiB, the limit is {limit >> 20} "
                "MiB",
                reason="out_of_memory",
                stage=self._stage,
                hint="raise the memory limit, or narrow the dims",
                resident_bytes=resident,
                limit_bytes=limit,
            )

    def _pump(self, seconds: float) -> bool:
        """Take what has arrived, waiting at most so long for it; False when there was nothing."""
        heard = False
        for key, _ in self._streams.select(seconds):
            data = os.read(key.fd, 1 << 16)
            heard = heard or bool(data)
            key.data(data)
            if not data:
                self._streams.unregister(key.fd)
        return heard

    def _drain(self) -> None:
        """Hear the process out once its last message came, or it ended; a grandchild may hold a
        stream open for longer.
        """
        deadline = time.monotonic() + _GRACE_SECONDS
        while self._streams.get_map() and time.monotonic() < deadline:
            if not self._pump(_POLL_SECONDS) and self._process.poll() is not None:
                break
        self._take_log(b"")

    def _take_messages(self, data: bytes) -> None:
        for line in self._messages.feed(data):
            try:
                message = message_from_json(json.loads(line))
            except (ValueError, TypeError) as error:
                raise CompileCrashed(
                    f"the compile process sent no message: {error}",
                    reason="crashed",
                    stage=self._stage,
                ) from error
            if isinstance(message, (Succeeded, Failed)):
                self._final = message
                continue
            if isinstance(message, Failing):
                self._failing = message
                continue
            if isinstance(message, StageStarted):
                self._stage = message.stage
            self._on_event(message)

    def _take_log(self, data: bytes) -> None:
        for line in self._log.feed(data) if data else self._log.rest():
            self._tail.append(line)
            self._logged += 1
            if self._logged <= _LOG_LINES:
                self._on_event(Log(line))
            elif self._logged == _LOG_LINES + 1:
                self._on_event(Log(f"(no more than {_LOG_LINES} lines are kept)"))

    def _crash(self) -> CompileCrashed:
        code = self._process.wait()
        name = signal.Signals(-code).name if code < 0 else None
        how = f"died of {name}" if name else f"ended with status {code} and no result"
        return CompileCrashed(
            f"the compile process {how} at stage {self._stage.value}",
            reason="crashed",
            stage=self._stage,
            hint="the kernel may have run out of memory" if name == "SIGKILL" else None,
            retryable=name == "SIGKILL",
            signal=name,
            exit_status=None if name else code,
            log=list(self._tail),
        )


def _environment(scratch: Path) -> dict[str, str]:
    """Nothing of ours but what finding programs and libraries takes: no credentials reach the
    compiler.
    """
    root = Path(__file__).parents[2]
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        "LANG": "C.UTF-8",
        **kept,
        cache.VARIABLE: str(cache.directory()),
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(root),
        "PYTHONUNBUFFERED": "1",
    }
