"""Remembers for a moment what costs statements or requests to find out."""

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

MOST = 4096

T = TypeVar("T")


class Recent:
    """Values by key, each for a few seconds, at most MOST; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[Hashable, tuple[float, float, Any]] = {}

    def get(
        self,
        key: Hashable,
        now: float,
        seconds: float,
        find: Callable[[], T],
        none_s: float | None = None,
    ) -> T:
        """The value of that key, found anew once it is older than so many seconds, None once it is
        older than `none_s`. Raises as `find`, of which nothing is remembered.
        """
        with self._lock:
            since, until, value = self._found.get(key, (0.0, 0.0, None))
        if since <= now < until:
            return value  # type: ignore[no-any-return]
        found = find()
        kept_s = none_s if found is None and none_s is not None else seconds
        with self._lock:
            if len(self._found) >= MOST:
                self._found.clear()
            self._found[key] = now, now + kept_s, found
        return found
