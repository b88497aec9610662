"""Memory against pages that nobody may touch: what reads or writes beyond a block dies of it."""

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from compiler.toolchain.packages import folder_of
from tests.fuzz.case import Array

SOURCE = Path(__file__).with_name("guard.c")
MOST = 1 << 28
"""Bytes of the largest block that there is."""
MOST = 1 << 28
"""Bytes of the largest block that there is."""
_FLAGS = (
    *("-target", "x86_64-linux-gnu", "-shared", "-nostdlib", "-fPIC", "-O2"),
    *("-Wall", "-Werror", "-fno-sanitize=all"),
)


def compile_guard(folder: Path) -> Path:
    """The shared library, for LD_PRELOAD and for `open_guard`."""
    new = folder / "guard.so"
    program = folder_of("ziglang") / "zig"
    with tempfile.TemporaryDirectory() as cache_folder:
        subprocess.run(
            [program, "cc", *_FLAGS, "-o", new, SOURCE],
            check=True,
            cwd=cache_folder,
            env={"ZIG_GLOBAL_CACHE_DIR": cache_folder, "ZIG_LOCAL_CACHE_DIR": cache_folder},
        )
    return new


@cache
def open_guard(path: str) -> ctypes.CDLL:
    """The library's functions; the one that is preloaded, where it is."""
    library = ctypes.CDLL(path)
    library.guard_place.restype = ctypes.c_void_p
    library.guard_place.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
    library.guard_release.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.guard_release.restype = None
    return library


class Guard:
    """Blocks that end at a page that is not there, or begin behind one, and hold a byte."""

    def __init__(self, path: str, at_end: bool, byte: int) -> None:
        self.library = open_guard(path)
        self._blocks: list[int] = []
        self.library.guard_begin(int(at_end), byte)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, align: int = 0) -> Array:
        """An array whose memory is of its own; at the end of a page to the byte, unless aligned."""
        size = int(np.prod(shape)) * dtype.itemsize
        start = self.library.guard_place(size, align or dtype.itemsize)
        if not start:
            raise MemoryError(f"{size} bytes")
        self._blocks.append(start)
        if not size:
            return np.empty(shape, dtype)
        memory = (ctypes.c_uint8 * size).from_address(start)
        return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)

    def copy(self, array: Array) -> Array:
        """The array in such memory."""
        new = self.empty(array.shape, array.dtype)
        new[...] = array
        return new

    def close(self) -> None:
        """Give every block back."""
        for block in self._blocks:
            self.library.guard_release(None, block)
        self._blocks.clear()
        self.library.guard_end()
