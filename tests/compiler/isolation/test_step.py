import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler.isolation.step import Record, TaskCancelled, TaskLimits, run_task

LIMITS = TaskLimits.of_work(30, 4 << 30)

MODULE = """
import os, signal, sys, time
from compiler.isolation.step import serve

def handle(spec, record):
    for value in spec["values"]:
        record({"value": value})
    exec(spec["then"])

if __name__ == "__main__":
    serve(handle)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "some_task.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "some_task"


def test_records_come_back(module: str, tmp_path: Path) -> None:
    outcome = run_task(
        module,
        {"values": [1, 2], "then": ""},
        tmp_path / "records",
        LIMITS,
    )
    assert outcome.ended
    assert outcome.records == [{"value": 1}, {"value": 2}]


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "died of SIGSEGV"),
        ("raise ValueError('odd')", "ValueError: odd"),
        ("sys.exit(3)", "ended with status 3"),
    ],
)
def test_an_early_end_keeps_the_records_and_says_why(
    module: str, tmp_path: Path, then: str, reason: str
) -> None:
    outcome = run_task(
        module,
        {"values": [1], "then": then},
        tmp_path / "records",
        LIMITS,
    )
    assert (outcome.ended, outcome.reason, outcome.records) == (False, reason, [{"value": 1}])


def test_a_task_that_sleeps_is_cut_by_the_wall_clock(module: str, tmp_path: Path) -> None:
    limits = TaskLimits(4 << 30, elapsed=2, seconds=1)
    outcome = run_task(
        module, {"values": [1], "then": "time.sleep(600)"}, tmp_path / "records", limits
    )
    assert (outcome.ended, outcome.late, outcome.records) == (False, True, [{"value": 1}])
    assert outcome.reason == "it hangs: 2 s passed, and it had not computed for 1"
    assert outcome.seconds == 1


def test_a_task_that_is_cancelled_is_ended(module: str, tmp_path: Path) -> None:
    records, spec = tmp_path / "records", {"values": [1], "then": "time.sleep(600)"}
    with pytest.raises(TaskCancelled):
        run_task(module, spec, records, LIMITS, cancelled=records.exists)


BURN = """
def burn():
    while True:
        pass
"""
IN_A_THREAD = BURN + "import threading; threading.Thread(target=burn).start(); time.sleep(600)"
HOLDING_THE_LOCK = "import re; re.match('(a*)*b', 'a' * 60)"


@pytest.fixture
def one_core() -> Iterator[None]:
    """Tasks have one core: how long a team of threads may compute depends on how many there are."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("then", [BURN + "burn()", IN_A_THREAD, HOLDING_THE_LOCK])
def test_a_task_that_computes_is_cut_by_its_budget(module: str, tmp_path: Path, then: str) -> None:
    limits = TaskLimits(4 << 30, elapsed=600, seconds=1)
    outcome = run_task(module, {"values": [1], "then": then}, tmp_path / "records", limits)
    assert (outcome.ended, outcome.late, outcome.records) == (False, True, [{"value": 1}])
    assert outcome.reason == "the time budget of 1 s of processor time ran out"
    assert outcome.seconds == 1


def test_without_a_budget_of_its_own_only_the_wall_clock_counts(
    module: str, tmp_path: Path
) -> None:
    limits = TaskLimits(4 << 30, elapsed=2)
    outcome = run_task(module, {"values": [], "then": BURN + "burn()"}, tmp_path / "r", limits)
    assert (outcome.late, outcome.reason) == (True, "the time budget of 2 s ran out")


def test_the_wall_clock_is_far_beyond_the_budget() -> None:
    limits = TaskLimits.of_work(30, 1)
    assert limits.elapsed >= 10 * 30


def test_a_task_that_waits_has_hardly_computed(module: str, tmp_path: Path) -> None:
    spec = {"values": [1], "then": "time.sleep(3)"}
    outcome = run_task(module, spec, tmp_path / "records", LIMITS)
    assert outcome.records == [{"value": 1}]
    assert 0 < outcome.seconds < 3


@pytest.mark.parametrize("written", ["-9", "nan", "inf", "1e9", "much", ""])
def test_what_a_task_says_of_its_time_gives_it_no_more(
    module: str, tmp_path: Path, written: str
) -> None:
    then = (
        f"open(sys.argv[1] + '.seconds', 'w').write({written!r}); sys.stdout.flush(); os._exit(3)"
    )
    outcome = run_task(module, {"values": [], "then": then}, tmp_path / "records", LIMITS)
    assert 0 <= outcome.seconds <= 30


def test_records_are_passed_on_once_each(module: str, tmp_path: Path) -> None:
    records = list[Record]()
    spec = {"values": [1, 2], "then": "time.sleep(1); record({'value': 3})"}
    run_task(module, spec, tmp_path / "records", LIMITS, on_records=records.extend)
    assert records == [{"value": value} for value in (1, 2, 3)]


def test_the_memory_budget(module: str, tmp_path: Path) -> None:
    outcome = run_task(
        module,
        {"values": [], "then": "bytearray(1 << 30)"},
        tmp_path / "records",
        TaskLimits.of_work(30, 256 << 20),
    )
    assert outcome.reason == "MemoryError"


def test_half_a_record_is_no_record(module: str, tmp_path: Path) -> None:
    then = "os.write(os.open(sys.argv[1], os.O_APPEND | os.O_WRONLY), b'{\"val')"
    outcome = run_task(
        module,
        {"values": [1], "then": then},
        tmp_path / "records",
        LIMITS,
    )
    assert outcome.records == [{"value": 1}]


def test_torch_stays_out(module: str, tmp_path: Path) -> None:
    outcome = run_task(
        module,
        {"values": [], "then": "record({'torch': sys.modules['torch']})"},
        tmp_path / "r",
        LIMITS,
    )
    assert outcome.records == [{"torch": None}]
    assert "some_task" not in sys.modules
