"""What every run checks: each message has a number, which the check's result must be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import tvm

FIRST = 1 << 20
"""Of the numbers: no extent is matched with a constant like that."""
ATTRIBUTE = "checks"
"""Of `main`: the messages by number, for the pass that writes them into the errors of the virtual
machine.
"""

_PRINTED = re.compile(r"T\.int64\((-?\d+)\)")
"""A number as TVM prints it."""


@dataclass
class Checks:
    """Messages by number; the same message has one number."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, message: str) -> int:
        """What stands for the message."""
        return self.numbers.setdefault(_PRINTED.sub(r"\1", message), FIRST + len(self.numbers))

    def attached(self, function: tvm.relax.Function) -> tvm.relax.Function:
        """The function with the messages in its attribute."""
        if not self.numbers:
            return function
        return function.with_attr(
            ATTRIBUTE, {str(number): message for message, number in self.numbers.items()}
        )


def messages_of(module: tvm.IRModule) -> Mapping[str, str]:
    """The messages by number that `main` carries."""
    attributes = module["main"].attrs
    found = attributes.get(ATTRIBUTE) if attributes else None
    return {str(number): str(message) for number, message in found.items()} if found else {}
