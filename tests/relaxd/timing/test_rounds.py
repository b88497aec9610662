"""Rounds of engines in turns: the order, what is repeated, what is kept."""

from collections import Counter

import pytest

from relaxd.timing import quiet, rounds
from relaxd.timing.contestants import times_of


class Fake:
    """Answers with the milliseconds in turn, then with an error."""

    def __init__(self, engine, *answers):
        self.engine, self.pid, self.answers, self.asked = engine, 1, list(answers), []

    def ask(self, **request):
        self.asked.append(request)
        return {"milliseconds": self.answers.pop(0)} if self.answers else {"error": "it broke"}


@pytest.fixture
def others(monkeypatch):
    """The shares that others use in the rounds to come; none once they are used up."""
    shares = []
    monkeypatch.setattr(
        quiet, "others_between", lambda before, after: shares.pop(0) if shares else 0.0
    )
    monkeypatch.setattr(rounds, "PAUSE", 0.0)
    return shares


def _engines(count):
    return [Fake("ours", *[[1.0, 2.0, 9.0]] * count), Fake("peer", *[[4.0]] * count)]


def test_each_engine_begins_equally_often_and_follows_each_other_one():
    racing = [Fake(name) for name in "abc"]
    orders = ["".join(one.engine for one in rounds.order(racing, n)) for n in range(6)]
    assert orders == ["abc", "cba", "bca", "acb", "cab", "bac"]
    assert set(Counter(order[0] for order in orders).values()) == {2}
    assert rounds.order([], 3) == []


def test_a_round_has_each_engines_median(others):
    done = rounds.in_turns(_engines(2), {"point": 0}, 2)
    assert [one.milliseconds for one in done] == [{"ours": 2.0, "peer": 4.0}] * 2
    assert [one.calls for one in done] == [{"ours": 3, "peer": 1}] * 2


def test_rounds_with_others_at_work_are_repeated(others):
    others += [0.0, 0.2, 0.06, 0.05]
    ours, peer = _engines(9)
    done = rounds.in_turns([ours, peer], {"point": 0}, 3)
    assert [one.others for one in done] == [0.0, 0.0, 0.05]
    assert len(ours.asked) == len(peer.asked) == 5


def test_where_the_machine_is_never_quiet_the_least_noisy_rounds_are_kept(others):
    others += [0.5, 0.2, 0.9, 0.3, 0.4, 0.01]
    done = rounds.in_turns(_engines(6), {"point": 0}, 3)
    assert [one.others for one in done] == [0.01, 0.2, 0.3]
    assert [one.quiet for one in done] == [True, False, False]


def test_an_engine_that_fails_is_not_asked_again_and_has_an_error(others):
    good, bad = Fake("good", *[[float(n)] for n in range(1, 7)]), Fake("bad", [1.0])
    done = rounds.in_turns([good, bad], {"point": 0}, 6)
    assert len(bad.asked) == 2
    assert times_of("bad", done) == {"error": "it broke"}
    assert times_of("good", done)["milliseconds"] == 3.5
    assert times_of("good", done)["calls"] == 6


def test_an_error_of_a_round_that_was_dropped_is_still_one(others):
    others += [0.0, 0.4]
    done = rounds.in_turns([Fake("good", *[[1.0]] * 6), Fake("bad", [1.0])], {"point": 0}, 2)
    assert times_of("bad", done) == {"error": "failed in a round that was not kept"}
