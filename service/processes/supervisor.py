"""Restarts worker processes that die, after a pause that doubles with repeated deaths."""

import asyncio
import os
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
HEALTHY_S = 30.0
GRACE_S = 10.0

logger = structlog.get_logger("relaxd.supervisor")


@dataclass(frozen=True)
class Supervisor:
    """Runs `command` in `count` processes with `environment` added to this process's own; a process
    has `drain_s` to end its work, and GRACE_S more to end.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    count: int
    drain_s: float = 0.0

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping`, which ends the processes."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.count):
                group.create_task(self._keep(number, stopping))

    async def _keep(self, number: int, stopping: asyncio.Event) -> None:
        pause = FIRST_PAUSE_S
        while not stopping.is_set():
            began = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                *self.command, env={**os.environ, **self.environment}
            )
            if not await _outlived(process, stopping):
                return await _end(process, self.drain_s + GRACE_S)
            lived = time.monotonic() - began
            pause = FIRST_PAUSE_S if lived > HEALTHY_S else min(pause * 2, LONGEST_PAUSE_S)
            logger.warning(
                "worker died",
                worker=number,
                pid=process.pid,
                status=process.returncode,
                lived_s=round(lived, 1),
                again_in_s=pause,
            )
            await _sleep(pause, stopping)
        return None


async def _outlived(process: Process, stopping: asyncio.Event) -> bool:
    """True if the process ended before it was asked to."""
    ended, asked = asyncio.create_task(process.wait()), asyncio.create_task(stopping.wait())
    await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if stopping.is_set():
        ended.cancel()
        return False
    return True


async def _end(process: Process, seconds: float) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _sleep(seconds: float, stopping: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return
