"""Helpers of benchmarks that run engines in turns on one core, by the time of their thread, and
that wait for a quiet machine first.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from relaxd.timing import quiet


def pin_to_one_core() -> None:
    """Keeps this process on the first core that it may use."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def thread_seconds(run: Callable[..., Any], *arguments: Any) -> float:
    """The time of this thread that a call takes."""
    started = time.thread_time()
    run(*arguments)
    return time.thread_time() - started


def wait_until_quiet(patience: float, interval: float = 1.0) -> float:
    """Wait until others use at most MOST of the machine for `interval` seconds, or until `patience`
    seconds have passed; return the share that they used at last.
    """
    end = time.monotonic() + patience
    while True:
        before = quiet.clock([os.getpid()])
        time.sleep(interval)
        share = quiet.others_between(before, quiet.clock([os.getpid()]))
        if share <= quiet.MOST or time.monotonic() > end:
            return share
