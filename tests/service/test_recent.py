"""Values that a process remembers, and for how long."""

from functools import partial

from service.recent import MOST, Recent, Renewal


class Asked:
    """Finds values, and lists what was asked."""

    def __init__(self) -> None:
        self.recent = Recent()
        self.finds: list[object] = []
        self.renewals: list[object] = []

    def get(self, now: float, value: object, holds: bool = True, **options: float) -> object:
        def find() -> object:
            self.finds.append(value)
            return value

        def renew(retained: object) -> bool:
            self.renewals.append(retained)
            return holds

        return self.recent.get("key", now, 5, find, renewal=Renewal(20, renew), **options)


def test_what_was_found_is_remembered_for_a_moment() -> None:
    recent, asked = Recent(), []

    def find(value: str | None) -> str | None:
        asked.append(value)
        return value

    for now, value in ((10, "a"), (14, "b"), (15, "c"), (16, None), (3, "earlier")):
        recent.get("key", now, 5, partial(find, value))
    assert asked == ["a", "c", "earlier"]
    recent.get("none", 20, 5, lambda: find(None), none_s=1)
    assert recent.get("none", 21, 5, lambda: find("d"), none_s=1) == "d"


def test_an_old_value_is_kept_as_long_as_its_renewal_holds() -> None:
    asked = Asked()
    assert [asked.get(now, now) for now in (10, 15, 19, 21, 29)] == [10] * 5
    assert (asked.finds, asked.renewals) == ([10], [10, 10, 10])
    assert asked.get(35, "anew", holds=False) == "anew"
    assert asked.get(36, "unasked") == "anew"


def test_no_renewal_keeps_a_value_for_longer_than_it_may() -> None:
    asked = Asked()
    assert [asked.get(now, now) for now in (10, 16, 22, 28, 34, 35)] == [10] * 4 + [34] * 2
    assert asked.get(29, "the clock went back") == "the clock went back"


def test_that_there_is_nothing_is_not_renewed() -> None:
    asked = Asked()
    assert asked.get(10, None, none_s=1) is None
    assert asked.get(11, "found", none_s=1) == "found"
    assert asked.renewals == []


def test_those_asked_for_last_are_remembered() -> None:
    recent, asked = Recent(), []

    def get(key: int) -> None:
        recent.get(key, 0, 5, lambda: asked.append(key) or key)

    for key in (*range(MOST), 0, MOST):
        get(key)
    asked.clear()
    for key in (0, MOST, 1):
        get(key)
    assert asked == [1]
