"""Durable files: locked temporaries, fsync, rename, fsync of the directory."""

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from artifacts.errors import StorageFailed, StoreFull

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
AHEAD = 32 << 20
"""Bytes of a file that is written which the disk may lack: a tenth of a second of it."""
MAKE_ROOM = "make room: `relaxd gc` removes what is no longer needed"


@contextmanager
def storage_errors(what: str, *, absence: bool = True) -> Iterator[None]:
    """Translate the system's errors; `what` names the operation; absence: that of a file, too."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not absence:
            raise
        if error.errno in NO_ROOM:
            raise StoreFull(f"{what}: {error}", hint=MAKE_ROOM) from error
        raise StorageFailed(
            f"{what}: {error}", hint="check the disk and the permissions, then try again"
        ) from error


def check_room(folder: Path, amount: int, reserve: int) -> None:
    """Raise StoreFull where so many bytes more would leave fewer than `reserve` free on the
    folder's disk.
    """
    with storage_errors(f"cannot look at the disk of {folder}"):
        free = shutil.disk_usage(folder).free
    if free - amount < reserve:
        raise StoreFull(f"the disk of {folder} has no room left", hint=MAKE_ROOM)


@contextmanager
def temporary(folder: Path) -> Iterator[BinaryIO]:
    """A new file to write and then `commit`; removed if it was not. Locked while its writer lives,
    so `sweep` can tell.
    """
    with storage_errors(f"cannot create a file in {folder}"):
        file = _create_locked(folder)
    try:
        yield file
    finally:
        Path(file.name).unlink(missing_ok=True)
        with suppress(OSError):  # what a full disk did not take is not wanted any more
            file.close()


def _create_locked(folder: Path) -> BinaryIO:
    while True:
        file = open(folder / uuid.uuid4().hex, "xb", opener=_open_read_only)  # noqa: SIM115 (the caller closes it)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # a sweep took it between its creation and its lock


def _open_read_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o444)


def keep_pace(file: BinaryIO, before: int, size: int) -> None:
    """Bring what a large file has to the disk, each time that it has grown by AHEAD since `before`
    bytes: whoever makes a small file durable waits for what others have not.
    """
    if before // AHEAD != size // AHEAD:
        with storage_errors(f"cannot write {Path(file.name).parent}"):
            file.flush()
            os.fdatasync(file.fileno())


def commit(file: BinaryIO, destination: Path) -> None:
    """Make a temporary's content durable under `destination`, replacing atomically what
    was there.
    """
    with storage_errors(f"cannot write {destination}"):
        file.flush()
        os.fsync(file.fileno())
        ensure_folder(destination.parent)
        os.rename(file.name, destination)
        sync_folder(destination.parent)


def ensure_folder(folder: Path) -> None:
    """Make the folder and its parents, each durable in its parent."""
    if folder.is_dir():
        return
    ensure_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> int:
    """Remove temporaries whose writer is dead; how many."""
    return sum(_remove_orphan(path) for path in folder.iterdir())


def _remove_orphan(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except (BlockingIOError, FileNotFoundError):  # its writer lives, or has just finished
        return False
    return True
