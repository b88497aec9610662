import sys
from pathlib import Path

import pytest

from compiler.isolation.step import run_task

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
        seconds=30,
        memory_bytes=4 << 30,
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
        seconds=30,
        memory_bytes=4 << 30,
    )
    assert (outcome.ended, outcome.reason, outcome.records) == (False, reason, [{"value": 1}])


def test_the_time_budget(module: str, tmp_path: Path) -> None:
    outcome = run_task(
        module,
        {"values": [1], "then": "time.sleep(60)"},
        tmp_path / "records",
        seconds=2,
        memory_bytes=4 << 30,
    )
    assert (outcome.ended, outcome.records) == (False, [{"value": 1}])
    assert "time budget" in (outcome.reason or "")


def test_the_memory_budget(module: str, tmp_path: Path) -> None:
    outcome = run_task(
        module,
        {"values": [], "then": "bytearray(1 << 30)"},
        tmp_path / "records",
        seconds=30,
        memory_bytes=256 << 20,
    )
    assert outcome.reason == "MemoryError"


def test_half_a_record_is_no_record(module: str, tmp_path: Path) -> None:
    then = "os.write(os.open(sys.argv[1], os.O_APPEND | os.O_WRONLY), b'{\"val')"
    outcome = run_task(
        module,
        {"values": [1], "then": then},
        tmp_path / "records",
        seconds=30,
        memory_bytes=4 << 30,
    )
    assert outcome.records == [{"value": 1}]


def test_torch_stays_out(module: str, tmp_path: Path) -> None:
    outcome = run_task(
        module,
        {"values": [], "then": "record({'torch': sys.modules['torch']})"},
        tmp_path / "r",
        seconds=30,
        memory_bytes=4 << 30,
    )
    assert outcome.records == [{"torch": None}]
    assert "some_task" not in sys.modules
