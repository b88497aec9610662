import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from service.processes import supervisor as module
from service.processes.supervisor import Supervisor

PATIENT = "import os, time; open(str(os.getpid()), 'w'); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + PATIENT


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "GRACE_S", 0.3)
    monkeypatch.chdir(tmp_path)


async def list_seen(pids: Callable[[], set[int]], count: int) -> set[int]:
    while len(pids()) < count:
        await asyncio.sleep(0.02)
    return pids()


def start() -> set[int]:
    """Each process leaves a file named after it."""
    return {int(path.name) for path in Path().iterdir()}


def supervise(code: str, count: int, during: Callable[[], object]) -> None:
    async def run() -> None:
        stopping = asyncio.Event()
        task = asyncio.create_task(
            Supervisor((sys.executable, "-c", code), {}, count).run(stopping)
        )
        try:
            await asyncio.wait_for(during(), 30)  # type: ignore[arg-type]
        finally:
            stopping.set()
            await asyncio.wait_for(task, 30)

    asyncio.run(run())


def test_a_worker_that_dies_is_started_again() -> None:
    async def kill_one() -> None:
        first = min(await list_seen(start, 2))
        os.kill(first, signal.SIGKILL)
        await list_seen(start, 3)

    supervise(PATIENT, 2, kill_one)
    assert not any(psutil.pid_exists(pid) for pid in start())


def test_a_worker_that_will_not_end_is_killed() -> None:
    async def wait() -> None:
        await list_seen(start, 1)

    supervise(STUBBORN, 1, wait)
    assert not any(psutil.pid_exists(pid) for pid in start())


def test_the_pause_grows_while_it_keeps_dying() -> None:
    async def wait() -> None:
        await asyncio.sleep(1.5)

    supervise("import os; open(str(os.getpid()), 'w')", 1, wait)
    assert 1 < len(start()) < 12
