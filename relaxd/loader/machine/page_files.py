"""Files of memory pages, and their parts at addresses of this process: one part may lie at several,
so that several arrays share its pages.
"""

import ctypes
import errno
import mmap
import os
import sys
import tempfile
import weakref
from functools import cache
from pathlib import Path
from typing import Any

from relaxd.errors import ExecutionError

_MAPS, _MOST_MAPS = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
_USUAL_MOST = 65530
_FIXED = 0x10
_PUNCH, _KEEP_SIZE = 2, 1
_FAILED = ctypes.c_void_p(-1).value
_PART = 1 << 22


def is_available() -> bool:
    """True if the system has files in memory whose parts can be mapped one by one and given back:
    Linux with addresses of 64 bits.
    """
    has_files = hasattr(os, "memfd_create") and sys.maxsize > 1 << 32
    return has_files and hasattr(_system(), "fallocate")


def mappings_left() -> int:
    """How many more mappings the kernel admits to this process."""
    try:
        most = int(_MOST_MAPS.read_text())
        return most - _MAPS.read_bytes().count(b"\n")
    except (OSError, ValueError):
        return _USUAL_MOST // 2


class PageFile:
    """A file without a name, of which only written pages take space; folder: the one whose disk has
    it, None for memory. Raises OSError where there can be none.
    """

    def __init__(self, folder: Path | None = None) -> None:
        if folder is None:
            self._number = os.memfd_create("relaxd-kv-cache", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile(buffering=0, dir=folder) as file:
                self._number = os.dup(file.fileno())
        # Threads may compute until the process has ended.
        weakref.finalize(self, os.close, self._number).atexit = False
        self._size = 0
        self._owner = os.getpid()

    def require_owner(self) -> None:
        """Raise ExecutionError in a forked process, whose parent would read what it writes."""
        if os.getpid() != self._owner:
            raise ExecutionError(
                "this process was forked from the one whose KV cache is in pages",
                hint="open the engine after the fork, or start processes by `spawn`",
            )

    @property
    def nbytes(self) -> int:
        """The space that its pages take."""
        return os.fstat(self._number).st_blocks * 512

    def grow(self, size: int) -> None:
        """Make the file at least so long."""
        self.require_owner()
        if size > self._size:
            os.truncate(self._number, size)
            self._size = size

    def map(self, address: int, size: int, offset: int, *, writable: bool) -> None:
        """Lay a part of the file over memory of this process; all in multiples of a page."""
        self.require_owner()
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        flags = mmap.MAP_SHARED | _FIXED
        result = _system().mmap(address, size, protection, flags, self._number, offset)
        if result == _FAILED:
            raise _failure("map", ctypes.get_errno())

    def punch(self, offset: int, size: int) -> None:
        """Give the pages of a part back; it reads as zeros."""
        self.require_owner()
        if _system().fallocate(self._number, _PUNCH | _KEEP_SIZE, offset, size):
            raise _failure("give back", ctypes.get_errno())

    def copy_from(self, source: "PageFile", start: int, offset: int, size: int) -> None:
        """Copy bytes of a file from `start` on to `offset`; raises OSError."""
        done = 0
        while done < size:
            part = os.pread(source._number, min(_PART, size - done), start + done)
            if not part:
                raise OSError(errno.EIO, "the file ends early")
            done += os.pwrite(self._number, part, offset + done)


def _failure(verb: str, number: int) -> ExecutionError:
    return ExecutionError(
        f"the system did not {verb} pages of the KV cache: {os.strerror(number)}",
        hint="raise the limits of memory and of mappings (vm.max_map_count), or turn pages off",
    )


@cache
def _system() -> Any:
    """The C library."""
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "fallocate"):
        offset = ctypes.c_int64
        library.mmap.restype = ctypes.c_void_p
        integer, size = ctypes.c_int, ctypes.c_size_t
        library.mmap.argtypes = (ctypes.c_void_p, size, integer, integer, integer, offset)
        library.fallocate.argtypes = (integer, integer, offset, offset)
    return library
