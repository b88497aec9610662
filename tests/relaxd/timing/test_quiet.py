"""The share of the processors that others use, from texts of /proc."""

import pytest

from relaxd.timing.quiet import Clock, clock, machine_ticks, others_between, process_ticks

STAT = "cpu  100 20 30 400 50 6 7 80 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"


def _process(name, user, system, children=(0, 0)):
    return f"12 ({name}) S 1 12 12 0 -1 4 0 0 0 0 {user} {system} {children[0]} {children[1]} 20 0"


def test_guests_are_counted_once_and_stolen_time_is_busy():
    total = 100 + 20 + 30 + 400 + 50 + 6 + 7 + 80
    assert machine_ticks(STAT) == (total, total - 400 - 50)


def test_a_processs_time_is_read_behind_any_name_and_holds_its_ended_childrens():
    assert process_ticks(_process("python", 7, 5)) == 12
    assert process_ticks(_process("a) b (c", 7, 5, (3, 2))) == 17


def test_what_others_use_is_what_is_busy_without_our_own():
    before = Clock(total=1000, busy=500, own=300)
    assert others_between(before, Clock(1200, 690, 480)) == pytest.approx(0.05)
    assert others_between(before, Clock(1200, 700, 400)) == pytest.approx(0.5)


def test_ticks_that_the_kernel_counts_late_are_no_negative_share():
    before = Clock(1000, 500, 300)
    assert others_between(before, Clock(1200, 680, 490)) == 0.0
    assert others_between(before, before) == 0.0


def test_processes_that_have_ended_count_nothing(tmp_path):
    (tmp_path / "stat").write_text(STAT)
    (tmp_path / "12").mkdir()
    (tmp_path / "12/stat").write_text(_process("python", 40, 2))
    assert clock([12, 13], tmp_path) == Clock(693, 243, 42)
