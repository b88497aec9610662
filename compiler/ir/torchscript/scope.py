"""A TorchScript graph being read: constants, and what schemas say of arguments."""

from functools import lru_cache
from typing import Any

from compiler.ir.aten.memory import Ref
from compiler.ir.aten.node import Node
from compiler.ir.aten.scope import Scope
from compiler.ir.torchscript.constants import constant, was_number


class ScriptScope(Scope):
    """Nodes name their arguments by their schemas; constants are nodes."""

    def _node(self, raw: Any) -> None:
        if raw.kind() == "prim::Constant":
            value = self.wrap(constant(raw))
            if isinstance(value, Ref):
                value.number = was_number(raw)
            self.bind(raw.output(), value)
            return
        self._import(raw, argument_names(raw.schema()))

    def _call(self, node: Node) -> Any:
        if fills(node.raw.schema()):
            node.fail(
                "writing a result into `out` is not supported",
                reason="unsupported_mutation",
                hint="assign the result instead",
            )
        return super()._call(node)


@lru_cache(maxsize=4096)
def _arguments(schema: str) -> tuple[Any, ...]:
    if "::" not in schema:
        return ()
    import torch

    return tuple(torch._C.parse_schema(schema).arguments)


def argument_names(schema: str) -> tuple[str, ...]:
    """The names of a schema's arguments, none for a node without one."""
    return tuple(argument.name for argument in _arguments(schema))


def fills(schema: str) -> bool:
    """True if an operator writes its result into an argument `out`."""
    return any(argument.is_out for argument in _arguments(schema))
