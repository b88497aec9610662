"""Decision trees as arrays of nodes and leaves, and the checks that keep a walk inside of them."""

from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import Any, TypeAlias

import numpy as np

from compiler.errors import ImportFailed

Array: TypeAlias = np.ndarray[Any, Any]

TARGETS = 1 << 20
"""Targets or classes of an ensemble at most."""


class Test(IntEnum):
    """How a node compares a feature with its split, in ONNX's numbering."""

    LEQ = 0
    LT = 1
    GTE = 2
    GT = 3
    EQ = 4
    NEQ = 5
    MEMBER = 6


class Presence(Enum):
    """How often the leaves that a row comes to have a weight for a target."""

    NEVER = auto()
    SOMETIMES = auto()
    ALWAYS = auto()


@dataclass(frozen=True)
class Forest:
    """Nodes by number with where they lead: a node's number, or that of a leaf plus the count of
    nodes.

    missing: NaN passes the test; members: the sets of the MEMBER nodes one after the other,
    node i's from first[i] to first[i + 1]; targets, weights: those of all leaves, leaf i's from
    starts[i] to starts[i + 1]; owners: the number of each leaf's tree, None where not known.
    """

    roots: Array
    features: Array
    tests: Array
    splits: Array
    yes: Array
    no: Array
    missing: Array
    members: Array
    first: Array
    starts: Array
    targets: Array
    weights: Array
    owners: Array | None = None

    @property
    def count(self) -> int:
        """Nodes that test something."""
        return len(self.features)

    @property
    def leaves(self) -> int:
        """Nodes that do not."""
        return len(self.starts) - 1

    def kinds(self) -> list[Test]:
        """The tests that occur; an ensemble of leaves alone has none."""
        return [Test(code) for code in np.unique(self.tests)]

    def dense(self, targets: int) -> bool:
        """True if each leaf has one weight for every target, in order."""
        return bool(
            len(self.targets) == self.leaves * targets
            and np.array_equal(self.starts, np.arange(self.leaves + 1) * targets)
            and np.array_equal(self.targets, np.tile(np.arange(targets), self.leaves))
        )

    def check(self, targets: int) -> int:
        """How many nodes the longest way down passes.

        Raises ImportFailed where a way leads in a circle or nowhere, or an index is out of range.
        """
        limit = self.count + self.leaves
        for ways in (self.yes, self.no, self.roots):
            _require(ways, limit, "a node of a tree leads nowhere")
        _require(self.features, 1 << 31, "a tree asks for a feature of a negative number")
        _require(self.targets, targets, "a leaf of a tree has a target that does not exist")
        if not len(self.roots) or not 1 <= targets <= TARGETS:
            raise ImportFailed(
                f"the ensemble has {len(self.roots)} trees and {targets} targets; both are needed, "
                f"targets up to {TARGETS}",
                reason="attribute",
            )
        if limit >= 1 << 31 or len(self.weights) >= 1 << 31:
            raise ImportFailed("the ensemble has 2^31 nodes or more", reason="too_large")
        return self._depth()

    def _depth(self) -> int:
        """Nodes are taken off from above, those first that no other leads to: what is left then
        leads in a circle.
        """
        ends = np.concatenate([self.yes, self.no])
        pending = np.bincount(ends[ends < self.count], minlength=self.count)
        level, depth, passed = np.flatnonzero(pending == 0), 0, 0
        while len(level):
            depth, passed = depth + 1, passed + len(level)
            below = np.concatenate([self.yes[level], self.no[level]])
            children, times = np.unique(below[below < self.count], return_counts=True)
            pending[children] -= times
            level = children[pending[children] == 0]
        if passed < self.count:
            raise ImportFailed("the nodes of a tree lead in a circle", reason="attribute")
        return depth

    def presence(self, targets: int) -> list[Presence]:
        """By target. A tree whose leaves all have a weight for it gives every row one."""
        owners = np.zeros(self.leaves, np.int64) if self.owners is None else self.owners
        sizes = np.bincount(owners)
        leaf = np.repeat(np.arange(self.leaves), np.diff(self.starts))
        pairs = np.unique(np.stack([leaf, self.targets.astype(np.int64)]), axis=1)
        weighted, counts = np.unique(
            np.stack([owners[pairs[0]], pairs[1]]), axis=1, return_counts=True
        )
        full = set(weighted[1][counts == sizes[weighted[0]]].tolist())
        named = set(self.targets.tolist())
        return [
            Presence.ALWAYS if t in full else Presence.SOMETIMES if t in named else Presence.NEVER
            for t in range(targets)
        ]


def _require(indices: Array, limit: int, message: str) -> None:
    if indices.size and (indices.min() < 0 or indices.max() >= limit):
        raise ImportFailed(message, reason="attribute")
