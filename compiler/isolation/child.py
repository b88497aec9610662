"""Runs one job in a fresh, confined, killable process, and turns however it ends into a result or a
typed error.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import psutil

from compiler.errors import (
    CompileCancelled,
    CompileCrashed,
    CompileDiskFull,
    CompileError,
    CompileOutOfMemory,
    CompileTimeout,
    CompileTooManyProcesses,
)
from compiler.isolation import output, zygote
from compiler.isolation.level import Level
from compiler.isolation.line_splitter import Lines
from compiler.isolation.linux import cgroups, quota
from compiler.isolation.linux.family import descend
from compiler.isolation.linux.visible_paths import runs_code
from compiler.isolation.messages import (
    ChildJob,
    CompileJob,
    Confined,
    Event,
    Failed,
    Failing,
    Log,
    StageStarted,
    Succeeded,
    message_from_json,
)
from compiler.isolation.meter import Meter
from compiler.isolation.starting import Limits, arguments, environment, written_by
from compiler.isolation.usage import OnUsage
from compiler.toolchain.objects import KernelObjects
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.states import Stage

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0
_LOG_LINE_BYTES = 4096
_LOG_LINES = 20_000
_MESSAGE_BYTES = 256 << 20
_TAIL_LINES = 20
_ASKED_TO_END_SECONDS = 2.0
_DISK_SECONDS = 0.5
_STOP_SECONDS = 5.0


def run_child(
    job: ChildJob,
    *,
    on_event: Callable[[Event], None] = lambda event: None,
    cancelled: Callable[[], bool] = lambda: False,
    limits: Limits | None = None,
    command: Sequence[str] | None = None,
    kernels: KernelObjects | None = None,
    on_usage: OnUsage = lambda usage: None,
) -> Manifest | dict[str, Any]:
    """The manifest of a CompileJob, whose bundle is then in `job.output`, or the report of an
    InspectJob or a FamiliesJob.

    on_event, cancelled: called in this thread, the latter several times a second.
    command: what to run in place of `python -m compiler.process`; it gets the same arguments and
    standard input; it writes the bundle to `output.partial_of(job)`, which is there. kernels: read
    by the build, and then given those that it compiled, if it ended well or was interrupted, and
    its model runs no code of its own. on_usage: called at the end, for each stage, however the
    build ended. Raises CompileError; no process and no partial bundle is left behind, whatever is
    raised.
    """
    limits = limits or Limits()
    if not isinstance(job, CompileJob):
        return _result(command, job, on_event, cancelled, limits, None, on_usage)
    output.begin(job)
    try:
        result = _result(command, job, on_event, cancelled, limits, kernels, on_usage)
        manifest = Manifest.from_json(result)
        output.deliver(job)
    finally:
        output.discard(job)
    return manifest


def _result(
    command: Sequence[str] | None,
    job: ChildJob,
    on_event: Callable[[Event], None],
    cancelled: Callable[[], bool],
    limits: Limits,
    kernels: KernelObjects | None,
    on_usage: OnUsage,
) -> dict[str, Any]:
    """The final document, of a process that has ended."""
    trusted = None if kernels is None or runs_code(Path(job.model)) else kernels
    with (
        tempfile.TemporaryDirectory(prefix="relaxd-", ignore_cleanup_errors=True) as scratch,
        _keep_kernels(trusted, Path(scratch), on_event),
    ):
        inner = output.within(job, Path(scratch), kernels)
        child = _Child(command, inner, Path(scratch), on_event, limits)
        try:
            result = child.watch(cancelled)
        except CompileError as error:
            child.kill()
            raise output.with_reproducer(error, job, inner) from error
        finally:
            child.kill()
            for usage in child.meter.stages():
                on_usage(usage)
            output.take_over((Path(scratch), *written_by(inner)))
        if isinstance(job, CompileJob):
            output.check(job, result)
        return result


@contextlib.contextmanager
def _keep_kernels(
    kernels: KernelObjects | None, scratch: Path, on_event: Callable[[Event], None]
) -> Iterator[None]:
    """Keep what the build in the block compiled, unless it ended by a failure of its own."""
    interruption: CompileError | None = None
    try:
        yield
    except (CompileCancelled, CompileTimeout) as error:
        interruption = error
    if kernels is not None:
        try:
            kernels.take(output.kernels_in(scratch))
        except OSError as error:
            on_event(Log(f"the kernels of this build are not kept: {error}"))
    if interruption:
        raise interruption


class _Child:
    """The process, its two streams, and what has been heard from it so far."""

    def __init__(
        self,
        command: Sequence[str] | None,
        job: ChildJob,
        scratch: Path,
        on_event: Callable[[Event], None],
        limits: Limits,
    ) -> None:
        self._on_event = on_event
        self._limits = limits
        self._folders = [scratch, *written_by(job)]
        self._level: Level | None = None
        self._stage = Stage.LOAD
        self.meter = Meter()
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._logged = 0
        self._final: Succeeded | Failed | None = None
        self._failing: Failing | None = None
        self._messages = Lines(_MESSAGE_BYTES)
        self._log = Lines(_LOG_LINE_BYTES)
        source = scratch / "job.json"
        source.write_text(json.dumps(job.to_json()))
        self._group = self._own_group()
        path = self._group.path if self._group else None
        reader, writer = os.pipe()
        try:
            with source.open("rb") as stdin:
                self._process = _start(command, limits, path, stdin, writer, scratch)
        except BaseException:
            os.close(reader)
            if self._group:
                self._group.remove()
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

    def _own_group(self) -> cgroups.Group | None:
        if (above := cgroups.parent()) is None:
            return None
        try:
            return cgroups.make(above, self._limits.memory_bytes, 2 * self._limits.processes)
        except OSError as error:
            self._on_event(Log(f"sandbox: no group of its own: {error}"))
            return None

    def watch(self, cancelled: Callable[[], bool]) -> dict[str, Any]:
        """The final document; raises what ended the process otherwise, or the failure that the
        process reported before.
        """
        try:
            return self._watch(cancelled)
        except (CompileTimeout, CompileOutOfMemory, CompileCrashed) as error:
            if self._failing is None:
                raise
            raise CompileError.from_failure(self._failing.failure) from error

    def _watch(self, cancelled: Callable[[], bool]) -> dict[str, Any]:
        limits = self._limits
        deadline = time.monotonic() + limits.seconds
        measured = time.monotonic()
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
            family = self._glance()
            if len(family) > limits.processes:
                raise _too_many_processes(len(family), limits.processes, self._stage)
            self._check_memory(family, self.meter.sample(family, self._stage))
            if time.monotonic() > measured + _DISK_SECONDS:
                self._check_disk(family)
                measured = time.monotonic()
        self._drain()
        match self._final:
            case Succeeded(result):
                return result
            case Failed(failure):
                raise CompileError.from_failure(failure)
        raise self._refused() or self._crash()

    def kill(self) -> None:
        """End all its processes and release the streams; idempotent."""
        self.meter.sample(self._family(), self._stage)
        descendants = self._stop()
        # The sandbox's outermost process ends all others, even those that we would not find.
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ASKED_TO_END_SECONDS)
        descendants += self._family()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._group:
            self._group.kill()
        self._process.wait()
        if isinstance(self._process, zygote.Forked):
            self.meter.settle(self._process.cpu_seconds, self._stage)
        if self._group:
            self._group.remove()
        self._streams.close()
        if self._process.stdout and not self._process.stdout.closed:
            self._process.stdout.close()
            os.close(self._reader)

    def _stop(self) -> list[psutil.Process]:
        """Have all its processes but the first stand still, until there are no new ones: one that
        is ended while others run may be followed by the next.
        """
        stopped: dict[psutil.Process, None] = {}
        until = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < until:
            running = [process for process in self._family()[1:] if process not in stopped]
            if not running:
                break
            for process in running:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            stopped |= dict.fromkeys(running)
        return list(stopped)

    def _family(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _glance(self) -> list[psutil.Process]:
        """The family at little cost; one that has just been started may be missing."""
        try:
            root = psutil.Process(self._process.pid)
            return [root, *descend(root)]
        except psutil.NoSuchProcess:
            return []

    def _check_memory(self, family: list[psutil.Process], resident: int) -> None:
        limit = self._limits.memory_bytes
        if resident > limit and (resident := self.meter.count_shared_once(family)) > limit:
            raise _out_of_memory(resident, limit, self._stage)

    def _check_disk(self, family: Sequence[psutil.Process]) -> None:
        limit = self._limits.disk_bytes
        taken = quota.disk_bytes(self._folders, (process.pid for process in family))
        if taken > limit:
            raise CompileDiskFull(
                f"the build wrote {taken >> 20} MiB, the limit is {limit >> 20} MiB",
                reason="disk_full",
                stage=self._stage,
                hint="raise the disk limit, or narrow the dims",
                disk_bytes=taken,
                limit_bytes=limit,
            )

    def _pump(self, seconds: float) -> bool:
        """Take what has arrived, waiting at most so long for it; False when there was nothing."""
        received = False
        for key, _ in self._streams.select(seconds):
            data = os.read(key.fd, 1 << 16)
            received = received or bool(data)
            key.data(data)
            if not data:
                self._streams.unregister(key.fd)
        return received

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
            if isinstance(message, Confined):
                # The first comes before the model is read; later ones are not to be believed.
                self._level = self._level or message.level
                continue
            if isinstance(message, StageStarted):
                self.meter.sample(self._glance(), self._stage)
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

    def _refused(self) -> CompileError | None:
        """The failure of a process that ended because its group had no more memory or processes."""
        limits, group = self._limits, self._group
        if group and group.oom_kills():
            return _out_of_memory(limits.memory_bytes, limits.memory_bytes, self._stage)
        if group and group.refused_forks():
            return _too_many_processes(2 * limits.processes, limits.processes, self._stage)
        return None

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


def _start(
    command: Sequence[str] | None,
    limits: Limits,
    group: Path | None,
    stdin: IO[bytes],
    messages: int,
    scratch: Path,
) -> "subprocess.Popen[bytes] | zygote.Forked":
    """The process; raises OSError."""
    env = environment(scratch)
    if command is None and (running := zygote.current()) is not None:
        words = partial(arguments, zygote.MESSAGES, limits=limits, group=group)
        return running.fork(words, stdin=stdin, messages=messages, cwd=scratch, env=env)
    program = command or (sys.executable, "-P", "-m", "compiler.process")
    return subprocess.Popen(
        [*program, *arguments(messages, os.getpid(), limits, group)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(messages,),
        start_new_session=True,
        cwd=scratch,
        env=env,
    )


def _out_of_memory(resident: int, limit: int, stage: Stage) -> CompileOutOfMemory:
    return CompileOutOfMemory(
        f"the build's processes grew to {resident >> 20} MiB, the limit is {limit >> 20} MiB",
        reason="out_of_memory",
        stage=stage,
        hint="raise the memory limit, or narrow the dims",
        resident_bytes=resident,
        limit_bytes=limit,
    )


def _too_many_processes(count: int, limit: int, stage: Stage) -> CompileTooManyProcesses:
    return CompileTooManyProcesses(
        f"the build started {count} processes, the limit is {limit}",
        reason="too_many_processes",
        stage=stage,
        limit=limit,
    )
