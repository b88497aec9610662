"""Turns: a lock that tenants get in turn, however many threads of one wait."""

import threading
from contextvars import Context

import pytest

from service.db.turns import TENANT, NoTurn, Turns
from tests.robustness.site import until


def start(turns: Turns, tenant: str, order: list[str]) -> threading.Thread:
    """A thread of a tenant's that has come to wait for its turn."""

    def work() -> None:
        TENANT.set(tenant)
        with turns.take(60):
            order.append(tenant)

    before = waiting(turns)
    thread = threading.Thread(target=Context().run, args=(work,))
    thread.start()
    until(lambda: waiting(turns) > before, 60, "a thread that waits")
    return thread


def waiting(turns: Turns) -> int:
    return sum(map(len, turns._waiting.values()))


def test_a_tenant_with_many_threads_holds_up_others_by_one() -> None:
    turns, order = Turns(), list[str]()
    with turns.take(60):
        threads = [start(turns, tenant, order) for tenant in ("a", "a", "a", "a", "b", "c", "b")]
    for thread in threads:
        thread.join()
    assert order == ["a", "b", "c", "a", "b", "a", "a"]
    with turns.take(0):
        pass


def test_a_turn_that_does_not_come_is_given_up() -> None:
    turns = Turns()
    with turns.take(60):
        with pytest.raises(NoTurn), turns.take(0.01):
            pass
        assert waiting(turns) == 0
    with turns.take(0):
        pass


def test_a_block_that_raises_passes_the_turn_on() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.take(60):
        raise ZeroDivisionError
    with turns.take(0):
        pass
