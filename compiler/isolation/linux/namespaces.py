"""Namespaces of a build's own: users, processes, network, and a view of the file system that holds
only what it needs.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from compiler.isolation.linux import kernel
from compiler.isolation.linux.kernel import Machine
from compiler.isolation.linux.visible_paths import VisiblePaths

_NEW = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
_DETACH = 2
_MOUNT_SETATTR, _HERE, _WHOLE_TREE = 442, -100, 0x8000
_PIVOT_ROOT = {Machine.X86_64: 155, Machine.AARCH64: 41}
_PROCESSES = Path("/proc")
_OTHER_USERS = 0x70000000
"""From here on, plus the id of a process, users and groups whom nothing else on a machine has."""
_EVERYBODY = ["0", "0", "4294967295"]


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("users", ctypes.c_uint64),
    )


def is_root() -> bool:
    """True for the machine's root, whose processes the kernel counts, and does not limit."""
    return os.getuid() == 0 and Path("/proc/self/uid_map").read_text().split() == _EVERYBODY


def leave(*, other_user: bool = False) -> bool:
    """Move this process, which must have one thread, into namespaces of its own, and its next child
    into one of processes; raises OSError, and then nothing has changed.

    True where `other_user` was wanted and the kernel has it: then user and group 0 of the namespace
    are some that nothing else on the machine has, and those of this process are in it as 1, until
    `become_other_user`.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = 0
    for flag in _NEW.values():
        flags |= flag
    if other_user:
        if _unshare_mapped(flags):
            return True
    else:
        kernel.unshare(flags)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")

    return False


def _unshare_mapped(flags: int) -> bool:
    """Unshare, and have a child, which stays outside, map the users: from inside, none but one's
    own can be.
    """
    this = os.getpid()
    reader, writer = os.pipe()
    mapper = os.fork()
    if not mapper:
        os.close(writer)
        status = 1
        with contextlib.suppress(OSError):
            if os.read(reader, 1):
                for kind in ("uid", "gid"):
                    lines = f"0 {_OTHER_USERS + this} 1\n1 0 1\n"
                    Path(f"/proc/{this}/{kind}_map").write_text(lines)
                status = 0
        os._exit(status)
    os.close(reader)
    try:
        kernel.unshare(flags)
        os.write(writer, b"\0")
    finally:
        os.close(writer)
        _, status = os.waitpid(mapper, 0)
    return status == 0


def become_other_user(writable: Iterable[Path]) -> None:
    """Be the user whom `leave` mapped, the owner of the writable folders; raises OSError.

    The kernel counts this user's processes by themselves, and holds them to their limit.
    """
    for top in writable:
        for root, folders, files in os.walk(top):
            for name in ("", *folders, *files):
                os.chown(os.path.join(root, name), 0, 0, follow_symlinks=False)
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def see_only(visible: VisiblePaths, folder: Path) -> None:
    """Replace the root of the file system by one that holds the visible paths alone.

    folder: an empty folder to build it in. Called by the first process of a namespace of processes;
    raises OSError.
    """
    machine = kernel.machine()
    if machine is None:
        raise OSError("no system call numbers for this architecture")
    kernel.mount(None, "/", None, _RECURSIVE | _PRIVATE)
    kernel.mount("none", str(folder), "tmpfs", _NO_SUID | _NO_DEVICES, "size=4m,mode=755")
    view = _View(folder)
    for path in visible.readable:
        if path != _PROCESSES:
            view.add(path, _READ_ONLY | _NO_SUID | _NO_DEVICES)
    for path in visible.devices:
        view.add(path, _NO_SUID | _NO_EXEC)
    for path in visible.writable:
        view.add(path, _NO_SUID | _NO_DEVICES, whole_tree=False)
    view.add_processes()
    os.chdir(folder)
    kernel.call(_PIVOT_ROOT[machine], b".", b".")
    kernel.unmount(".", _DETACH)
    _set("/", _READ_ONLY, whole_tree=False)
    os.chdir("/")


class _View:
    """A root that is being built."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, path: Path, attributes: int, *, whole_tree: bool = True) -> None:
        """Mount what lies at an absolute path at the same path here, links on its way included."""
        real = self._way_to(path)
        if not real.exists():
            return
        target = self._folder / real.relative_to("/")
        if real.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        kernel.mount(str(real), str(target), None, _BIND | (_RECURSIVE if whole_tree else 0))
        _set(str(target), attributes, whole_tree=whole_tree)

    def add_processes(self) -> None:
        """Show the processes of this namespace, or where a container hides parts of /proc, which
        forbids a new one, the old.
        """
        target = self._folder / "proc"
        target.mkdir()
        try:
            kernel.mount("proc", str(target), "proc", _NO_SUID | _NO_DEVICES | _NO_EXEC)
        except OSError:
            kernel.mount("/proc", str(target), None, _BIND | _RECURSIVE)
        # The kernel's parameters in it belong to root, whom a namespace of users may well map.
        _set(str(target), _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_EXEC, whole_tree=True)

    def _way_to(self, path: Path) -> Path:
        """The path without links, each of which is made here too."""
        walked = Path("/")
        parts = list(path.parts[1:])
        while parts:
            walked /= parts.pop(0)
            if not walked.is_symlink():
                continue
            target = os.readlink(walked)
            copy = self._folder / walked.relative_to("/")
            if not copy.is_symlink() and not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.symlink_to(target)
            return self._way_to(Path(os.path.normpath(walked.parent / target)).joinpath(*parts))
        return walked


def _set(path: str, attributes: int, *, whole_tree: bool) -> None:
    wanted = _Attributes(set=attributes)
    flags = _WHOLE_TREE if whole_tree else 0
    kernel.call(
        _MOUNT_SETATTR, _HERE, path.encode(), flags, ctypes.byref(wanted), ctypes.sizeof(wanted)
    )
