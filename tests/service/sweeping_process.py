"""A process that helps to sweep, and is killed once it has removed some pages from the store,
before it could note the last of them: `python -m tests.service.sweeping_process PAGES MANY`.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable

from artifacts import open_store
from service.core import Core
from service.db.engine import Database
from service.settings import read_settings
from service.usecases import chores
from service.usecases.store import holdings, sweeping
from tests.service.fakes import FakeCompiler, FakeDoorbell


def main() -> None:
    """Sweep until it is killed."""
    settings = read_settings()
    db, store = Database(settings.database), open_store(settings.store)
    core = Core(settings, db, store, FakeCompiler(), FakeDoorbell(), time.time)
    left, real = int(sys.argv[1]), holdings.release

    def release(core: Core, digests: Iterable[str], before: float) -> list[str]:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(core, digests, before)

    chores.LEASE_S = 2.0
    sweeping.PAGE, sweeping.MANY = 10, int(sys.argv[2])
    holdings.release = release
    sweeping.help_sweep(core, lambda: None)


if __name__ == "__main__":
    main()
