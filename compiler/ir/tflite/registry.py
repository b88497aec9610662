"""The table of TFLite operators: one small function each."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from compiler.ir.tflite.node import Node

Result: TypeAlias = "str | Sequence[str]"
Handler: TypeAlias = "Callable[[Node], Result]"

TABLE: dict[str, Handler] = {}


def op(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler, which writes ONNX nodes and gives the names of its outputs."""

    def register(handler: Handler) -> Handler:
        for name in names:
            TABLE[name] = handler
        return handler

    return register
