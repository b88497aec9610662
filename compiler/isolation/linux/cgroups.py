"""Groups of the kernel (cgroup v2) in which each build has its share of memory and processes, where
this machine lets us make any.
"""

import contextlib
import errno
import os
import secrets
import signal
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CONTROLLERS = frozenset({"memory", "pids"})
SERVICE = "relaxd-service"
"""The group into which processes go whose own group is to have groups: the kernel wants a group to
have the one or the other.
"""
_BUILD = "relaxd-build-"
_DELEGATED = ("user.delegate", "trusted.delegate")
"""Attributes by which systemd marks the groups that it leaves to a service (`Delegate=yes`)."""
_REMOVAL_SECONDS = 2.0


class NoGroups(Exception):
    """There can be no groups of our own here; the text says why."""


@dataclass(frozen=True)
class Group:
    """The group of one build."""

    path: Path

    def oom_kills(self) -> int:
        """Processes that the kernel ended because the group's memory was used up."""
        return _count(self.path / "memory.events", "oom_kill")

    def refused_forks(self) -> int:
        """Processes and threads that the kernel refused the group."""
        return _count(self.path / "pids.events", "max")

    def kill(self) -> None:
        """End every process in it, however it was started."""
        with contextlib.suppress(FileNotFoundError):
            if (self.path / "cgroup.kill").exists():
                (self.path / "cgroup.kill").write_text("1")
                return
            # Kernels before 5.14. What stands still starts no others meanwhile.
            (self.path / "cgroup.freeze").write_text("1")
            for process in (self.path / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)

    def remove(self) -> None:
        """Remove the group, whose processes were killed."""
        until = time.monotonic() + _REMOVAL_SECONDS
        while True:
            try:
                return self.path.rmdir()
            except FileNotFoundError:
                return None
            except OSError:
                # The kernel takes a moment to bury them; what is left is swept by the next worker.
                if time.monotonic() > until:
                    return None
                time.sleep(0.01)


def make(parent: Path, memory_bytes: int, processes: int) -> Group:
    """A group below `parent` that may have so much memory, none of it on a swap device, and so many
    processes and threads; raises OSError.
    """
    path = parent / f"{_BUILD}{os.getpid()}-{secrets.token_hex(4)}"
    path.mkdir()
    try:
        (path / "memory.max").write_text(str(memory_bytes))
        (path / "pids.max").write_text(str(processes))
        # Half a build would go on to fail somewhere else.
        (path / "memory.oom.group").write_text("1")
        with contextlib.suppress(FileNotFoundError):  # kernels without swap
            (path / "memory.swap.max").write_text("0")
    except OSError:
        path.rmdir()
        raise
    return Group(path)


def join(path: Path) -> None:
    """Put this process into the group; raises OSError."""
    (path / "cgroup.procs").write_text(str(os.getpid()))


@cache
def parent() -> Path | None:
    """The group below which this process may make groups for builds; None where it may make
    none.
    """
    try:
        own, _ = _own_group()
        return prepare(own, may_move=False)
    except (NoGroups, OSError):
        return None


def limits_processes() -> bool:
    """True if the group of this process, or one above it that we see, has a limit of processes, as
    those of containers do.
    """
    try:
        own, _ = _own_group()
        limits = [(path / "pids.max") for path in (own, *own.parents)]
        return any(path.read_text().strip() != "max" for path in limits if path.exists())
    except (NoGroups, OSError):
        return False


def settle() -> str | None:
    """Make room for groups of builds, to be called once by a service before it asks for `parent`;
    why there can be none, or None. Where it has to and the group is a service's own, moves all
    processes in it to one below.
    """
    try:
        own, is_top = _own_group()
        prepare(own, may_move=is_top or _is_delegated(own))
        return None
    except (NoGroups, OSError) as error:
        return str(error)


def prepare(own: Path, *, may_move: bool) -> Path:
    """The group below which a process in the group `own` may make groups; raises NoGroups and
    OSError.
    """
    above = own.parent if own.name == SERVICE else own
    controllers = (above / "cgroup.controllers").read_text().split()
    if lacking := CONTROLLERS - set(controllers):
        raise NoGroups(f"{above} has no controllers for {' and '.join(sorted(lacking))}")
    enabled = (above / "cgroup.subtree_control").read_text().split()
    if not set(enabled) >= CONTROLLERS:
        _enable(above, may_move=may_move)
    make(above, 1 << 30, 64).remove()
    _sweep(above)
    return above


def _enable(group: Path, *, may_move: bool) -> None:
    wanted = " ".join(f"+{name}" for name in sorted(CONTROLLERS))
    try:
        (group / "cgroup.subtree_control").write_text(wanted)
        return
    except OSError as error:
        if error.errno != errno.EBUSY or not may_move:
            raise
    # Its processes are in the way; all of them are this service's.
    service = group / SERVICE
    service.mkdir(exist_ok=True)
    for process in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            (service / "cgroup.procs").write_text(process)
    (group / "cgroup.subtree_control").write_text(wanted)


def _own_group() -> tuple[Path, bool]:
    """Our group's folder, and whether it is the topmost that we see; raises NoGroups, OSError."""
    mount = _mount()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            inner = line.removeprefix("0::/")
            return mount / inner, not inner or inner == SERVICE
    raise NoGroups("the kernel has no cgroup v2")


def _mount() -> Path:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return Path(before.split()[4])
    raise NoGroups("cgroup v2 is not mounted")


def _is_delegated(group: Path) -> bool:
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def _sweep(group: Path) -> None:
    """Remove what workers left that were killed: the kernel refuses it where a build goes on."""
    for path in group.glob(f"{_BUILD}*"):
        pid = path.name.removeprefix(_BUILD).partition("-")[0]
        if not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(OSError):
                path.rmdir()


def _count(path: Path, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return 0
