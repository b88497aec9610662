"""Branches that differ in rank: which of them the rest of the model can take, found by importing it
with either.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from compiler.errors import ImportFailed

RANKS = "branch_rank"
"""The reason of a failure that names a node whose branches differ in rank."""
FORKS = 4
"""More such nodes than this are not tried: each doubles the imports."""
CONTRADICTIONS = frozenset({"import.shape", "import.axis", "import.raises"})
"""Failures that say that a model makes no sense at the shapes reached, at any values of its dims.
"""

T = TypeVar("T")


def explore(
    read: Callable[[Mapping[str, bool]], T], assumed: Mapping[str, bool] | None = None
) -> T:
    """The result of `read`, given by label which way nodes go whose branches cannot be joined.

    A node is told to go one way where the other contradicts itself later on; `read` demands that of
    every run. Raises the failure that named the node where neither way, or both, can be imported.
    """
    assumed = assumed or {}
    try:
        return read(assumed)
    except ImportFailed as error:
        node = error.failure.node
        if (
            error.code != f"import.{RANKS}"
            or node is None
            or node in assumed
            or len(assumed) == FORKS
        ):
            raise
        ways = [_way(read, {**assumed, node: taken}) for taken in (True, False)]
        right = [way for way in ways if not isinstance(way, ImportFailed)]
        if len(right) != 1 or not any(
            isinstance(way, ImportFailed) and way.code in CONTRADICTIONS for way in ways
        ):
            raise
        return right[0]


def _way(read: Callable[[Mapping[str, bool]], T], assumed: Mapping[str, bool]) -> T | ImportFailed:
    try:
        return explore(read, assumed)
    except ImportFailed as error:
        return error
