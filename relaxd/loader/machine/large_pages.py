"""Memory in pages of 2 MB, in which reading from end to end waits for fewer look-ups of addresses,
and memory that is never in such pages.
"""

import contextlib
import mmap
from pathlib import Path

import numpy as np

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_PART = 1 << 24


def available(setting: Path = _SETTING) -> bool:
    """True if the kernel gives large pages to whoever asks for them."""
    try:
        return "[never]" not in setting.read_text()
    except OSError:
        return False


def read(path: Path) -> np.ndarray:
    """The bytes of a file, in memory of this process's own, of large pages where the kernel has
    some.
    """
    size = path.stat().st_size
    if not size:
        return np.zeros(0, np.uint8)
    memory = _own(size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    content, filled = memoryview(memory), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(content[filled : filled + _PART]):
            filled += count
    return np.frombuffer(content[:filled], np.uint8)


def zeros_by_small_pages(size: int) -> np.ndarray:
    """Bytes of which memory is taken as they are written, a few KiB at a time.

    numpy asks for large pages: they would be taken for all of an array that is filled in part.
    """
    if not size:
        return np.zeros(0, np.uint8)
    memory = _own(size)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # A kernel that is built without large pages knows no advice about them.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def _own(size: int) -> mmap.mmap:
    """Memory of this process."""
    # Memory that forked processes share copies on write, as any other: kernels give large pages to
    # shared memory by a setting apart.
    private = hasattr(mmap, "MAP_PRIVATE")
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE) if private else mmap.mmap(-1, size)
