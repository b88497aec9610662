"""Attributes of the module: each call starts from what the file holds, or from a declared input."""

from typing import Any

from compiler.ir.aten.attributes import path_of
from compiler.ir.aten.node import Node
from compiler.ir.aten.registry import control
from compiler.ir.aten.structure import UNSET
from compiler.ir.graph.builder import Builder


@control("prim::GetAttr")
def get_attribute(b: Builder, node: Node) -> Any:
    """The attribute's present value; None for a submodule, which only leads to its attributes."""
    path = path_of(node.raw)
    if path is None:
        node.fail("an attribute of something that is not the module", reason="unsupported_form")
    slot = node.scope.model.slots.get(path)
    return None if slot is None else node.memory.content(slot)


@control("prim::SetAttr")
def set_attribute(b: Builder, node: Node) -> Any:
    """Replace what the attribute holds."""
    path = path_of(node.raw)
    slot = node.scope.model.slots.get(path or "")
    if slot is None:
        node.fail("an attribute of something that is not the module", reason="unsupported_form")
    node.memory.write(slot, node.args[1])


@control("prim::Uninitialized")
def unset_value(b: Builder, node: Node) -> Any:
    """A value that no way through the program reads."""
    return UNSET
