"""Names the variables of an import after the model's nodes that emitted them.

A variable is called `n12_`, after the position of its node among those that emitted anything: what
a node is called is for people, and must not reach the library.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# Relax takes digits at the end for its own, by which it tells variables of one name apart.
_NAME = re.compile(r"n(\d+)_\d*")
_CHARACTERS = 120
"""Of a node's name, this many stand in messages."""


@dataclass
class Origins:
    """The nodes that are being imported, innermost last, and those that have emitted something."""

    _open: list[tuple[str, str]] = field(default_factory=list)
    _emitting: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def inside(self, label: str, spoken: str = "") -> Iterator[None]:
        """Attribute what the body emits to the node of that name.

        spoken: the operator and the node's name, for messages of run-time checks.
        """
        self._open.append((label, _printable(spoken)))
        try:
            yield
        finally:
            self._open.pop()

    def hint(self) -> str:
        """How to call the next variable; empty outside of nodes."""
        if not self._open:
            return ""
        return f"n{self._emitting.setdefault(self._open[-1][0], len(self._emitting))}_"

    @property
    def spoken(self) -> str:
        """The operator and the name of the innermost node, empty outside of nodes."""
        return self._open[-1][1] if self._open else ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The nodes by position."""
        return tuple(self._emitting)


def _printable(text: str) -> str:
    """A name as it may stand in a message: braces delimit messages of the virtual machine."""
    plain = "".join(c if c.isprintable() and c not in "{}" else "_" for c in text)
    return plain if len(plain) <= _CHARACTERS else f"{plain[:_CHARACTERS]}..."


def position_of(variable: str) -> int | None:
    """Which node a variable is named after."""
    match = _NAME.fullmatch(variable)
    return int(match[1]) if match else None
