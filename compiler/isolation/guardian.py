"""The processes around a confined one: they end everything that it started when it ends, or when
nobody waits for it any more.
"""

import contextlib
import os
import select
import signal
import struct
from collections.abc import Iterable
from types import FrameType

from compiler.isolation.linux import privileges


class _Asked(Exception):
    """Somebody asked this process to end."""


def fork_guarded() -> None:
    """Go on in a child, in a session of its own; this process waits for it, ends as it ended, and
    before that ends all its descendants, wherever they moved.
    """
    privileges.adopt_orphans()
    guardian, descriptors = os.getpid(), _descriptors()
    child = os.fork()
    if child:
        _guard(child, None, descriptors)
    privileges.end_with_parent()
    if os.getppid() != guardian:
        os._exit(1)
    os.setsid()


def fork_first_of_namespace() -> int:
    """Go on as the first process of a namespace of processes, with which all others in it end; what
    `fork_from_first` takes.
    """
    reader, writer = os.pipe()
    descriptors = _descriptors()
    child = os.fork()
    if child:
        _guard(child, reader, descriptors)
    os.close(reader)
    privileges.end_with_parent()
    # The guardian holds the other end: it may have ended before the death signal was asked for.
    poll = select.poll()
    poll.register(writer, 0)
    if poll.poll(0):
        os._exit(1)
    return writer


def fork_from_first(writer: int) -> None:
    """Go on in a child; the first process waits for it, takes in what it leaves behind, and reports
    how it ended.
    """
    descriptors = _descriptors()
    child = os.fork()
    if not child:
        os.close(writer)
        return
    _let_go(descriptors, keep=writer)
    ended, status = 0, 0
    while ended != child:
        ended, status = os.wait()
    os.write(writer, struct.pack("i", status))
    os._exit(0)


def _guard(child: int, reader: int | None, descriptors: Iterable[int]) -> None:
    """Wait for the child, whose status comes through `reader` where another process knows it.

    The child gives both a new root at a time of its own, in which this process is not in /proc.
    """
    signal.signal(signal.SIGTERM, _asked)
    ended, status = 0, signal.SIGKILL.value
    try:
        _let_go(descriptors, keep=reader)
        privileges.hide_memory()
        while ended != child:
            ended, status = os.wait()
        if reader is not None:
            sent = os.read(reader, 4)
            status = struct.unpack("i", sent)[0] if len(sent) == 4 else status
    except _Asked:
        status = signal.SIGTERM.value
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if reader is None:
            _end_children()
        elif ended != child:
            _end(child)
        _end_as(status)


def _asked(number: int, frame: FrameType | None) -> None:
    raise _Asked


def _descriptors() -> list[int]:
    """The descriptors that this process has open."""
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _let_go(descriptors: Iterable[int], keep: int | None) -> None:
    """Close the streams that the job is read from and written to: others wait for their end."""
    for descriptor in descriptors:
        if descriptor > 2 and descriptor != keep:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _end_children() -> None:
    """Kill the children until there are none: orphans among their descendants become ours."""
    while children := _children():
        for child in children:
            _end(child)


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def _children() -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process().children()]


def _end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))
