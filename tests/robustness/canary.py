"""A file of which the kernel reports when anyone opens it."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

OPEN, ACCESS = 0x20, 0x1
EVENT_BYTES = 16
CONTENT = b"the canary: nobody else's business"

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Canary:
    """A secret in a file."""

    path: Path
    watch: int

    def count_opened(self) -> int:
        """How often it was opened or read since the last call."""
        try:
            return len(os.read(self.watch, 1 << 16)) // EVENT_BYTES
        except BlockingIOError:
            return 0


@contextmanager
def canary(path: Path) -> Iterator[Canary]:
    """The file, written and watched."""
    path.write_bytes(CONTENT)
    watch = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if watch < 0 or _libc.inotify_add_watch(watch, os.fsencode(path), OPEN | ACCESS) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    try:
        yield Canary(path, watch)
    finally:
        os.close(watch)
