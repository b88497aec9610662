"""A program's graph being read by the operators of TorchScript: arguments stand in the nodes, and
errors name the user's line.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compiler.errors import ImportFailed
from compiler.ir.aten.lists import unpack
from compiler.ir.aten.memory import ListBox
from compiler.ir.aten.scope import Scope
from compiler.ir.pt2.graph import CONSTANT, LIST, Node, Value
from compiler.ir.pt2.lines import user_line


class ProgramScope(Scope):
    """Looks up what nodes are called with: values by name, literals and lists where they stand."""

    def lookup(self, raw: Any) -> Any:
        """The value that stands for one of the graph's."""
        if isinstance(raw, Value) and raw.producer.operator == CONSTANT:
            return raw.literal
        if isinstance(raw, Value) and raw.producer.operator == LIST:
            return self.wrap([self.lookup(item) for item in raw.producer.arguments])
        if isinstance(raw, Value) and raw.items:
            return tuple(self.lookup(item) for item in raw.items)
        return super().lookup(raw)

    def _node(self, raw: Any) -> None:
        with quoting_line(raw):
            self._import(raw, raw.names)

    def bind(self, raw: Any, value: Any) -> None:
        """Make a value of the graph stand for something; a list for its items."""
        if raw.producer.operator == CONSTANT:
            return
        if raw.kind.name != "ListType":
            super().bind(raw, value)
            return
        content = self.memory.content(value) if isinstance(value, ListBox) else value
        for item, part in zip(raw.items, unpack(self.memory, content, len(raw.items)), strict=True):
            super().bind(item, part)


@contextmanager
def quoting_line(node: Node) -> Iterator[None]:
    """Errors of the body say which line of the user's code the node comes from."""
    try:
        yield
    except ImportFailed as error:
        line = user_line(node.trace)
        if line is None or error.failure.details.get("source"):
            raise
        failure = error.failure
        raise ImportFailed(
            f"{failure.message} (from {line})",
            reason=failure.code.partition(".")[2],
            node=failure.node,
            op=failure.op,
            hint=failure.hint,
            field=failure.field,
            **{**failure.details, "source": line},
        ) from error
