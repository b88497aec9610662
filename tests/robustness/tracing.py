"""Kills a process at a chosen boundary of its system calls, by ptrace, and knows what it had made
durable by then.
"""

import ctypes
import hashlib
import os
import signal
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

TRACE_ME, TO_NEXT_CALL, SET_OPTIONS, CALL_INFO = 0, 24, 0x4200, 0x420E
MARK_CALLS, KILL_WITH_TRACER = 0x1, 0x100000
AT_CALL = signal.SIGTRAP | 0x80
ENTRY, RETURN = 1, 2
INFO_BYTES, INFO_CALL = 88, 24
FSYNC = {"x86_64": (74, 75), "aarch64": (82, 83)}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2
_libc.ptrace.restype = ctypes.c_long


@dataclass
class Durable:
    """The state that fsync has made durable: files by inode and content, and by folder the entries
    that it had then.
    """

    files: set[tuple[int, bytes]] = field(default_factory=set)
    entries: dict[Path, set[str]] = field(default_factory=dict)

    def note(self, path: Path) -> None:
        """The process has made the file or the folder durable."""
        if path.is_dir():
            self.entries[path] = set(os.listdir(path))
        else:
            self.files.add(_identity(path))

    def lose_the_rest(self, folder: Path) -> None:
        """Make of the folder what a power failure may leave: entries that were not synced are gone,
        and files that were not are empty.
        """
        known = self.entries.get(folder, set())
        for path in list(folder.iterdir()):
            if path.is_dir():
                self.lose_the_rest(path)
                if path.name not in known:
                    _remove_tree(path)
            elif path.name not in known:
                path.unlink()
            elif _identity(path) not in self.files:
                path.chmod(0o644)
                os.truncate(path, 0)


@dataclass(frozen=True)
class Traced:
    """A process that was traced: how many boundaries it passed, whether it was killed at the last,
    and what it had made durable.
    """

    boundaries: int
    killed: bool
    durable: Durable


def run(work: Callable[[], None], kill_at: int | None = None) -> Traced:
    """Fork a process that does the work; kill it at that boundary: the entry to a system call, or
    the return from one. Raises OSError where tracing is refused.
    """
    child = os.fork()
    if child == 0:
        _be_traced(work)
    os.waitpid(child, 0)
    try:
        _ptrace(SET_OPTIONS, child, 0, MARK_CALLS | KILL_WITH_TRACER)
        return _Tracer(child).run(kill_at)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


class _Tracer:
    def __init__(self, child: int) -> None:
        self._child = child
        self._durable = Durable()
        self._syncing: Path | None = None

    def run(self, kill_at: int | None) -> Traced:
        passed, signalled = 0, 0
        while True:
            _ptrace(TO_NEXT_CALL, self._child, 0, signalled)
            _, status = os.waitpid(self._child, 0)
            if not os.WIFSTOPPED(status):
                if os.waitstatus_to_exitcode(status):
                    raise ChildProcessError(f"the traced process ended with {status}")
                return Traced(passed, False, self._durable)
            stopped_by = os.WSTOPSIG(status)
            signalled = 0 if stopped_by in (AT_CALL, signal.SIGSTOP) else stopped_by
            if stopped_by != AT_CALL:
                continue
            self._note_fsync()
            passed += 1
            if passed == kill_at:
                os.kill(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)
                return Traced(passed, True, self._durable)

    def _note_fsync(self) -> None:
        """Note the file of an fsync that has succeeded."""
        info = ctypes.create_string_buffer(INFO_BYTES)
        _ptrace(CALL_INFO, self._child, INFO_BYTES, ctypes.addressof(info))
        if info.raw[0] == ENTRY:
            number, descriptor = struct.unpack_from("QQ", info.raw, INFO_CALL)
            syncs = number in FSYNC[os.uname().machine]
            link = f"/proc/{self._child}/fd/{descriptor}"
            self._syncing = Path(os.readlink(link)) if syncs else None
        elif self._syncing and struct.unpack_from("q", info.raw, INFO_CALL)[0] == 0:
            self._durable.note(self._syncing)


def _be_traced(work: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        _ptrace(TRACE_ME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        work()
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(status)


def _ptrace(request: int, process: int, address: int, data: int) -> None:
    if _libc.ptrace(request, process, address, data) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"ptrace: {os.strerror(code)}")


def _identity(path: Path) -> tuple[int, bytes]:
    """The inode and the content: an inode may come to another file."""
    return path.stat().st_ino, hashlib.sha256(path.read_bytes()).digest()


def _remove_tree(folder: Path) -> None:
    for path in folder.iterdir():
        _remove_tree(path) if path.is_dir() else path.unlink()
    folder.rmdir()
