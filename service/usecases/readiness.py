"""Readiness for jobs: checks the database, the store and the data folder."""

import math
import threading
import time

from sqlalchemy import update

from artifacts.errors import StoreError
from artifacts.files import storage_errors, temporary
from service.core import Core
from service.db.schema import FLOOR_ROW, counters
from service.errors import ServiceError

REMEMBERED_S = 5.0
"""Anyone may ask, and finding out writes to the disk."""
PROBE = b"written to learn whether the store takes anything"
_WRITE = update(counters).where(counters.c.name == FLOOR_ROW).values(value=counters.c.value)
"""Of a row that nobody else writes."""


class Readiness:
    """Finds out at most once in REMEMBERED_S; safe to use from several threads."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._found_out = -math.inf
        self._error: Exception | None = None

    def check(self) -> None:
        """Raise DatabaseUnavailable or StorageFailed unless jobs can be taken; the broker may be
        away without harm.
        """
        with self._lock:
            if time.monotonic() - self._found_out >= REMEMBERED_S:
                self._error = self._find_out()
                self._found_out = time.monotonic()
            if self._error is not None:
                raise self._error.with_traceback(None)

    def _find_out(self) -> Exception | None:
        try:
            self._core.db.check_writable(_WRITE)
            self._core.store.blobs.put(PROBE)
            self._write_to_data_dir()
        except (ServiceError, StoreError) as error:
            return error
        return None

    def _write_to_data_dir(self) -> None:
        folder = self._core.settings.data_dir
        with storage_errors(f"cannot write to {folder}"), temporary(folder) as file:
            file.write(PROBE)
            file.flush()
