"""Remembers for a while what costs statements or requests to find out."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

MOST = 1024

T = TypeVar("T")


@dataclass(frozen=True)
class Renewal:
    """How a value is kept that is older than it may be: `holds` says of it whether it is still
    true, and is asked unless it was found `most_s` seconds ago.
    """

    most_s: float
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class _Known:
    value: Any
    found_at: float
    since: float
    """When it was found or renewed last."""


class Recent:
    """Values by key, each for a few seconds, the MOST that were asked for last; safe to use from
    several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()

    def get(
        self,
        key: Hashable,
        now: float,
        seconds: float,
        find: Callable[[], T],
        *,
        none_s: float | None = None,
        renewal: Renewal | None = None,
    ) -> T:
        """The value of that key, found anew once it is older than so many seconds, None once it is
        older than `none_s`; but not where its renewal keeps it. Raises as `find` and the renewal,
        and then remembers nothing new.
        """
        known = self._poll(key)
        if known is not None:
            kept_s = none_s if known.value is None and none_s is not None else seconds
            if known.since <= now < known.since + kept_s:
                return known.value  # type: ignore[no-any-return]
            if known.value is not None and renewal and _is_renewed(known, now, renewal):
                self._note(key, _Known(known.value, known.found_at, now))
                return known.value  # type: ignore[no-any-return]
        value = find()
        self._note(key, _Known(value, now, now))
        return value

    def _poll(self, key: Hashable) -> _Known | None:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def _note(self, key: Hashable, known: _Known) -> None:
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > MOST:
                self._known.popitem(last=False)


def _is_renewed(known: _Known, now: float, renewal: Renewal) -> bool:
    is_young = known.found_at <= now < known.found_at + renewal.most_s
    return is_young and renewal.holds(known.value)
