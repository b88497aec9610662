"""The table of ONNX operators: one small function each, with the opset from which it serves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compiler.ir.graph.builder import Builder
from compiler.ir.onnx.model.lists import Content
from compiler.ir.onnx.node import Node

Result: TypeAlias = "Content | Sequence[Content | None]"
Handler: TypeAlias = Callable[[Builder, Node], Result]


@dataclass(frozen=True)
class Entry:
    """A handler and the opset range it serves, `since` included, until the next entry of the same
    operator.
    """

    handler: Handler
    since: int


TABLE: dict[tuple[str, str], list[Entry]] = {}
REFUSED: dict[tuple[str, str], str] = {}
"""Operators refused by name, with the reason."""


def op(*names: str, since: int = 1, domain: str = "") -> Callable[[Handler], Handler]:
    """Register a handler for operators of a domain from an opset on."""

    def register(handler: Handler) -> Handler:
        for name in names:
            entries = TABLE.setdefault((domain, name), [])
            entries.append(Entry(handler, since))
            entries.sort(key=lambda entry: -entry.since)
        return handler

    return register


def refuse(*names: str, why: str, domain: str = "") -> None:
    """Register operators that are refused, with a reason a user understands."""
    for name in names:
        REFUSED[domain, name] = why


def find(domain: str, name: str, opset: int) -> Handler | None:
    """The handler that serves an operator at an opset, None where there is none."""
    domain = "" if domain == "ai.onnx" else domain
    return next(
        (entry.handler for entry in TABLE.get((domain, name), ()) if entry.since <= opset), None
    )


def refusal(domain: str, name: str) -> str | None:
    """Why an operator is refused, None where it is not."""
    return REFUSED.get(("" if domain == "ai.onnx" else domain, name))
