"""Priorities and deadlines as callers declare them, and the order that they give."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxd.contract.urgency import AGING_S, HIGHEST, LOWEST, USUAL_S, Urgency, read_deadline
from relaxd.errors import DeclarationError

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("1.5m", 90.0),
        (" 2h ", 7200.0),
        ("1d", 86400.0),
        (90, 90.0),
        (0.5, 0.5),
        (timedelta(minutes=3), 180.0),
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T14:00:00+02:00", NOON),
        (datetime(2026, 1, 31, 14, tzinfo=EAST), NOON),
    ],
)
def test_a_deadline_is_a_span_or_a_time(value, read):
    assert read_deadline(value) == read


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("0", "more than 0 seconds"),
        (-1, "more than 0 seconds"),
        (0.0, "more than 0 seconds"),
        ("367d", "at most a year"),
        (float("nan"), "more than 0 seconds"),
        (float("inf"), "at most a year"),
        (timedelta(0), "more than 0 seconds"),
        ("2026-01-31T12:00:00", "no time zone"),
        ("2026-01-31", "no time zone"),
        (datetime(2026, 1, 31), "no time zone"),
        ("0001-01-01T00:00:00+12:00", "cannot read"),
        ("soon", "cannot read"),
        ("", "cannot read"),
        ("9" * 4000, "cannot read"),
        ("٣m", "cannot read"),
        (True, "cannot read"),
        ([], "cannot read"),
    ],
)
def test_what_is_no_deadline_says_how_to_write_one(value, says):
    with pytest.raises(DeclarationError, match=says) as caught:
        read_deadline(value)
    assert caught.value.field == "deadline"
    assert "30m" in str(caught.value.hint)


@pytest.mark.parametrize("priority", [LOWEST - 1, HIGHEST + 1, True, 1.0, "1", None])
def test_what_is_no_priority(priority):
    with pytest.raises(DeclarationError) as caught:
        Urgency.of(priority)
    assert caught.value.field == "priority"


def test_priority_comes_before_the_deadline_of_what_is_submitted_at_once():
    deadlines = [1.0, 60.0, USUAL_S - 1]
    priorities = range(HIGHEST, LOWEST - 1, -1)
    order = [Urgency.of(priority, ends) for priority in priorities for ends in deadlines]
    dues = [urgency.due_at(0.0) for urgency in order]
    assert all(first < second for first, second in pairwise(dues))


def test_a_deadline_never_makes_a_build_later():
    usual = Urgency().due_at(0.0)
    assert Urgency.of(deadline="1d").due_at(0.0) == usual > Urgency.of(deadline="1m").due_at(0.0)


@given(
    st.integers(LOWEST, HIGHEST), st.integers(LOWEST, HIGHEST), st.floats(0.1, 3e7), st.booleans()
)
def test_nothing_is_overtaken_for_ever(low, high, deadline, has_deadline):
    """Whatever comes this much later goes behind."""
    waits = AGING_S * (HIGHEST - LOWEST) + USUAL_S
    first = Urgency.of(low, deadline if has_deadline else None)
    assert first.due_at(0.0) <= Urgency.of(high, 0.1).due_at(waits)


def test_parameters_are_read_as_they_were():
    for urgency in (Urgency(), Urgency.of(-3, 0.25), Urgency.of(7, NOON), Urgency.of(1, 1e7)):
        sent = urgency.parameters
        assert Urgency.of(int(sent.get("priority", 0)), sent.get("deadline")) == urgency
    assert Urgency().parameters == {}
