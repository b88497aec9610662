"""Waiting for a quiet machine."""

from benchmarks import turns
from relaxd.timing import quiet


def test_waiting_ends_with_the_first_quiet_look_or_with_patience(monkeypatch):
    shares = iter([0.5, 0.3, 0.01, 0.9])
    monkeypatch.setattr(quiet, "others_between", lambda before, after: next(shares))
    assert turns.wait_until_quiet(60, interval=0.0) == 0.01
    assert turns.wait_until_quiet(-1.0, interval=0.0) == 0.9
