"""Checks of every run: each message has a number, which the check's result must be."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm.ir import Expr as PrimExpr
from tvm_ffi import StructuralKey

from compiler.ir.graph.origins import Origins
from relaxd.contract.dims.names import with_names

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
    """Messages by number.

    origins: the node that is being imported, which the message of its check names.
    """

    origins: Origins = field(default_factory=Origins)
    messages: dict[str, str] = field(default_factory=dict)
    _numbers: dict[tuple[str, Any], int] = field(default_factory=dict)

    def number(self, message: str, condition: PrimExpr | None = None) -> int:
        """The message's number: one for each node, or for each `condition` on dims, of which all
        nodes after the first one require nothing new.
        """
        text, spoken = with_names(_PRINTED.sub(r"\1", message)), self.origins.spoken
        key = (text, spoken if condition is None else StructuralKey(condition))
        if key not in self._numbers:
            self._numbers[key] = FIRST + len(self._numbers)
            self.messages[str(self._numbers[key])] = _naming(spoken, text)
        return self._numbers[key]

    def attach_to(self, function: tvm.relax.Function) -> tvm.relax.Function:
        """The function with the messages in its attribute."""
        return function.with_attr(ATTRIBUTE, self.messages) if self.messages else function


def _naming(spoken: str, text: str) -> str:
    """The message behind the operator and the node's name."""
    operator = spoken.partition(" ")[0].rpartition(":")[2].rpartition(".")[2]
    return f"{spoken}: {text.removeprefix(f'{operator}: ')}" if spoken else text


def messages_of(module: tvm.IRModule) -> Mapping[str, str]:
    """The messages by number that `main` carries."""
    attributes = module["main"].attrs
    messages = attributes.get(ATTRIBUTE) if attributes else None
    return {str(number): str(message) for number, message in messages.items()} if messages else {}
