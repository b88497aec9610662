"""What a compile process gives up before it reads its job: privileges, the network, core dumps,
outliving its parent.
"""

import ctypes
import os
import resource
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


class ParentDied(Exception):
    """The process that wanted the result is gone."""


def confine(parent: int) -> list[str]:
    """Confine this process, while it has one thread; returns remarks on what the kernel refused;
    raises ParentDied.

    parent: the process id of the one who started us; when it dies, so do we.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    remarks = [*_prefer_for_oom_kill(), *_cut_network(libc)]
    # The kernel forgets the death signal when credentials change, so it comes after the namespaces.
    end_with_parent()
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        remarks.append(f"set-user-id programs keep their powers: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        raise ParentDied(parent)
    return remarks


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _prefer_for_oom_kill() -> list[str]:
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError as error:
        return [f"the kernel may kill others first when memory runs out: {error}"]
    return []


def _cut_network(libc: ctypes.CDLL) -> list[str]:
    """A network namespace of our own holds no interface that leads anywhere; an unprivileged one
    needs a user namespace too.
    """
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        return [f"the network is not cut off: {os.strerror(ctypes.get_errno())}"]
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError as error:
        return [f"user ids are not mapped: {error}"]
    return []
