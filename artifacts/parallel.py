"""Does many small things with a store at once: each costs a remote one milliseconds of wait."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

AT_ONCE = 32
BATCH = 1024
"""Calls that are handed out together, so that memory does not grow with their number."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def call_many(
    call: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[tuple[Item, Result]]:
    """Each item and what `call` returns for it, in order; AT_ONCE threads call it."""
    waiting = iter(items)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        while batch := list(islice(waiting, BATCH)):
            yield from zip(batch, threads.map(call, batch), strict=True)
