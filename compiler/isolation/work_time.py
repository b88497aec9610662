"""The time in which a task computes: waiting for a processor that others use does not count."""

import os
import signal
import threading
import time
from collections.abc import Callable

from relaxd.loader.machine.topology import cpu_quota

Clock = Callable[[], float]

_TEAM = 3.0
"""How many times the limit of a task its threads may compute on each core: those of a team spin
while they wait for its first thread.
"""
_LONGEST_PAUSE, _SHORTEST_PAUSE = 0.5, 0.02
_AT_ONCE = 1e-6


def clock_work() -> Clock:
    """Seconds in which this process has computed: the processor time of its main thread, from any
    thread.

    On an idle machine they are about those that pass, as the thread that calls an engine shares in
    its work. On a busy one they hardly change: beside 12 processes that compute on 2 cores, runs of
    24 layers of 384 x 384 took 800 to 1200 ms in place of 25, and 24 to 31 ms of the main thread.
    Processor time of all threads doubled, as those that wait for others spin.
    """
    identity = threading.main_thread().ident
    assert identity is not None
    number = time.pthread_getcpuclockid(identity)
    return lambda: time.clock_gettime(number)


def count_cores() -> float:
    """Processors that this process may use at a time, fewer where a cgroup grants less."""
    processors = float(len(os.sched_getaffinity(0)))
    quota = cpu_quota()
    return processors if quota is None else max(min(processors, quota), 1.0)


def wait_for_work(seconds: float, clock: Clock, sleep: Callable[[float], None]) -> None:
    """Return once the clock has reached so many seconds, which cannot be before they passed."""
    while (left := seconds - clock()) > 0:
        sleep(min(max(left, _SHORTEST_PAUSE), _LONGEST_PAUSE))


def end_after(seconds: float) -> None:
    """Have the kernel end this process with SIGPROF once it has computed for so long."""

    def watch() -> None:
        wait_for_work(seconds, clock_work(), time.sleep)
        # Where the sandbox refuses signals, a process may still set its own timers.
        signal.setitimer(signal.ITIMER_PROF, _AT_ONCE)

    # For threads that compute while the main one waits, and calls that keep Python's lock.
    signal.setitimer(signal.ITIMER_PROF, _TEAM * seconds * count_cores())
    threading.Thread(target=watch, name="work-limit", daemon=True).start()
