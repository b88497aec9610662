"""The library that runs parallel loops, called as compiled code calls it."""

import ctypes
import os
import threading
import time
from collections import Counter

import pytest
import tvm_ffi

from compiler import targets
from compiler.runtimes.threads import threads
from relaxd.loader.engines.helpers import Helpers

TASKS = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p
)
FFI = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
HELPERS = 3


@pytest.fixture(scope="module")
def launch():
    """TVMBackendParallelLaunch as compiled code has it, led from this thread by a team of four."""
    path = str(threads(targets.resolve("native")))
    helpers = Helpers(ctypes.CDLL(path))
    team, ids = helpers.start(HELPERS, patience=50_000)
    assert len(set(ids)) == HELPERS
    helpers.lead(team)
    assert not helpers.leave()
    helpers.lead(team)
    function = ctypes.CDLL(path).relaxd_launch
    function.argtypes = (TASKS, ctypes.c_void_p, ctypes.c_int32)
    yield lambda tasks, count=0: function(TASKS(tasks), None, count)
    assert helpers.leave()


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 64])
def test_every_task_runs_once(launch, count):
    for _ in range(300):
        seen = []

        def task(number, group, data, seen=seen):
            seen.append((number, group[1] & 0xFFFFFFFF))
            return 0

        assert launch(task, count) == 0
        total = count or HELPERS + 1
        assert sorted(seen) == [(task, total) for task in range(total)]


def test_loops_within_tasks_run_where_they_are(launch):
    seen: Counter[tuple[int, int]] = Counter()

    def outer(task, group, data):
        here = threading.get_native_id()
        return launch(
            lambda inner, inner_group, inner_data: (
                seen.update([(task, here - threading.get_native_id())]) or 0
            ),
            8,
        )

    assert launch(outer) == 0
    assert seen == {(task, 0): 8 for task in range(HELPERS + 1)}


@pytest.mark.parametrize("failing", range(HELPERS + 1))
def test_the_error_of_a_task_is_raised_on_the_thread_that_led(launch, failing):
    def tasks(task, group, data):
        if task != failing:
            return 0
        FFI.TVMFFIErrorSetRaisedFromCStr(b"ValueError", f"task {task}".encode())
        return -1

    for _ in range(50):
        assert launch(tasks) == -1
        error = ctypes.c_void_p()
        FFI.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
        assert error.value
        FFI.TVMFFIObjectDecRef(error)
    assert launch(lambda task, group, data: 0) == 0


def spin(seconds):
    """Compute for so long."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def threads_of(launch, task):
    """The threads that ran the tasks of one loop; `task` is told whether the leader runs it."""
    leader, seen = threading.get_native_id(), []

    def tasks(number, group, data):
        own = threading.get_native_id()
        seen.append(own)
        task(own == leader)
        return 0

    assert launch(tasks) == 0
    assert len(seen) == HELPERS + 1
    return set(seen)


@pytest.fixture
def first_in_line():
    """This thread gets its core whenever it asks: a leader that shares one keeps all helpers."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        pytest.skip("needs the right to run ahead of other programs")
    yield
    os.sched_setscheduler(0, *before)


def test_helpers_that_hold_up_more_than_they_compute_are_left_alone_for_a_while(
    launch, first_in_line
):
    def held_up(leads):
        if leads:
            spin(0.002)
        else:
            time.sleep(0.02)

    def holds_up(leads):
        if leads:
            time.sleep(0.004)

    alone, in_a_row = {threading.get_native_id()}, 0
    # Where a hypervisor takes this core for a while, the trials of that time decide nothing.
    for _ in range(1000):
        in_a_row = in_a_row + 1 if threads_of(launch, held_up) == alone else 0
        if in_a_row == 3:
            break
    assert in_a_row == 3
    # Longer than the longest rest: all of them are back, and whoever is never waited for stays.
    time.sleep(0.7)
    for _ in range(50):
        threads_of(launch, holds_up)
    assert any(len(threads_of(launch, holds_up)) == HELPERS + 1 for _ in range(300))
