"""Privileges that a process gives up: capabilities, new privileges, and a large share of the
machine.
"""

import contextlib
import os
import resource
import signal
import struct
from dataclasses import dataclass
from pathlib import Path

from compiler.isolation.linux import kernel
from compiler.isolation.linux.kernel import Machine

_SET_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES = 1, 38
_SET_DUMPABLE = 4
_SET_SUBREAPER, _DROP_FROM_BOUNDING_SET = 36, 24
_CAPSET = {Machine.X86_64: 126, Machine.AARCH64: 91}
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64
_OPEN_FILES = 4096
_LOWEST_PROCESSES = 1024


@dataclass(frozen=True)
class Shares:
    """memory_bytes: of one process's private memory; file_bytes: of one file; processes: more than
    the user runs already.
    """

    memory_bytes: int
    file_bytes: int
    processes: int = _LOWEST_PROCESSES


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends."""
    with contextlib.suppress(OSError):
        kernel.prctl(_SET_DEATH_SIGNAL, int(number))


def hide_memory() -> None:
    """Keep other processes of the same user from this one's memory and environment; raises OSError.

    The next program that this process executes starts without it.
    """
    kernel.prctl(_SET_DUMPABLE, 0)


def show_memory() -> None:
    """Undo `hide_memory`, which forks inherit; raises OSError."""
    kernel.prctl(_SET_DUMPABLE, 1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends; raises OSError."""
    kernel.prctl(_SET_SUBREAPER, 1)


def forgo_privileges() -> None:
    """Run set-user-id programs as any other; raises OSError."""
    kernel.prctl(_SET_NO_NEW_PRIVILEGES, 1)


def drop_capabilities() -> None:
    """Give up every capability, for what this process starts as well; raises OSError."""
    for capability in range(_MOST_CAPABILITIES):
        try:
            kernel.prctl(_DROP_FROM_BOUNDING_SET, capability)
        except OSError:
            # Not one of this kernel's, or no right to drop it: the sets below are emptied anyway.
            break
    machine = kernel.machine()
    if machine is not None:
        header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
        kernel.call(_CAPSET[machine], header, bytes(24))


def limit(shares: Shares) -> None:
    """Lower this process's limits, which its children inherit."""
    _lower(resource.RLIMIT_CORE, 0)
    limit_memory(shares.memory_bytes)
    _lower(resource.RLIMIT_FSIZE, shares.file_bytes)
    _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _lower(resource.RLIMIT_MEMLOCK, 1 << 26)
    _lower(resource.RLIMIT_MSGQUEUE, 0)
    _lower(resource.RLIMIT_NPROC, shares.processes + _tasks_of_user())


def limit_memory(size: int) -> None:
    """Let allocations fail beyond so many bytes of this process's private memory."""
    _lower(resource.RLIMIT_DATA, size)


def prefer_for_oom_kill() -> None:
    """When the machine runs out of memory, have the kernel end this process first; raises
    OSError.
    """
    Path("/proc/self/oom_score_adj").write_text("1000")


def _lower(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _tasks_of_user() -> int:
    """Threads of this user's processes, which the kernel counts together."""
    tasks = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                # One link for each thread, beside the folder's own two.
                tasks += os.stat(f"/proc/{entry.name}/task").st_nlink - 2
    return tasks
