"""How much of the disk a build's folders take, files included that were removed and are still
open.
"""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

_BLOCK = 512
_FILE_BYTES = 4096
"""What a file counts at least: many empty ones fill a file system too."""


def disk_bytes(folders: Iterable[Path], processes: Iterable[int]) -> int:
    """Bytes on disk of everything in the folders, and of what the processes hold open without a
    name.
    """
    named = sum(_below(folder) for folder in folders)
    return named + sum(_unnamed(process) for process in processes)


def _below(folder: Path) -> int:
    total = 0
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    total += max(status.st_blocks * _BLOCK, _FILE_BYTES)
    return total


def _unnamed(process: int) -> int:
    """Each file counts once for every descriptor: nobody has a reason to hold many."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    total += status.st_blocks * _BLOCK
    return total
