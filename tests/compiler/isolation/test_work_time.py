"""The time in which a task computes."""

import threading
import time

import pytest

from compiler.isolation import work_time
from compiler.isolation.work_time import clock_work, count_cores, wait_for_work


class Machine:
    """A machine on which a task computes for a share of the time that passes."""

    def __init__(self, share: float) -> None:
        self.share, self.passed = share, 0.0

    def clock(self) -> float:
        """Seconds in which the task has computed."""
        return self.passed * self.share

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.passed += seconds


@pytest.mark.parametrize("share", [1.0, 0.5, 1 / 16])
def test_on_a_busy_machine_more_time_passes_before_a_budget_is_spent(share: float) -> None:
    machine = Machine(share)
    wait_for_work(30.0, machine.clock, machine.sleep)
    assert machine.passed == pytest.approx(30.0 / share, rel=0.01)


def test_a_task_that_waits_spends_nothing() -> None:
    class Enough(Exception):
        pass

    machine = Machine(0.0)

    def sleep(seconds: float) -> None:
        machine.sleep(seconds)
        if machine.passed > 1e5:
            raise Enough

    with pytest.raises(Enough):
        wait_for_work(30.0, machine.clock, sleep)


def test_the_clock_is_that_of_the_main_thread_wherever_it_is_read() -> None:
    read: list[float] = []
    thread = threading.Thread(target=lambda: read.append(clock_work()()))
    before = time.thread_time()
    thread.start()
    thread.join()
    assert before <= read[0] <= time.thread_time()


@pytest.mark.parametrize(("quota", "cores"), [(None, 8.0), (2.5, 2.5), (0.1, 1.0), (64.0, 8.0)])
def test_a_quota_lowers_the_cores(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: float
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(work_time, "cpu_quota", lambda: quota)
    assert count_cores() == cores
