"""Space set aside on the disk of an embedded job database: what makes room, a collection or a
cancelled job, has to write to the database first, and can do so on a full disk from here alone.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from sqlalchemy import make_url

from artifacts.files import check_room
from service.settings import Settings

FILE = "recovery"

logger = structlog.get_logger("relaxd.recovery")


def set_aside(settings: Settings) -> None:
    """Fill the file that holds the space, where the disk has room for it twice, and nobody has
    borrowed it.
    """
    size, path = settings.recovery_bytes, _path(settings)
    if size and _free(path) >= 2 * size:
        _fill(path, size)


@contextmanager
def borrow(settings: Settings) -> Iterator[None]:
    """The space is free while the block lasts, if the disk is full, and what was not used of it is
    set aside again after it. Uploads and new jobs do not get it: they leave more than that.
    """
    size, path = settings.recovery_bytes, _path(settings)
    if not size or not path.exists():
        yield
        return
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        if _free(path) < size:
            os.truncate(path, 0)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
            _fill(path, min(size, _free(path) + path.stat().st_size))


def _fill(path: Path, size: int) -> None:
    """Give the file that size, unless somebody else has borrowed it, who does it then."""
    try:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size < size:
                os.posix_fallocate(file.fileno(), 0, size)
    except BlockingIOError:
        return
    except OSError as error:
        logger.warning("no space is set aside for a full disk", error=str(error))


def require_room(settings: Settings) -> None:
    """Raise StoreFull where new rows would take what is left to those that are there: half of the
    reserve.
    """
    if settings.recovery_bytes:
        check_room(_path(settings).parent, 0, settings.reserve_bytes // 2)


def _path(settings: Settings) -> Path:
    return Path(make_url(settings.database).database or settings.data_dir / FILE).with_name(FILE)


def _free(path: Path) -> int:
    return shutil.disk_usage(path.parent).free
