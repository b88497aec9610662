"""The table of TorchScript operators: one small function each, of a tensor, a view of one, or plain
Python values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from compiler.ir.aten.memory import Step
from compiler.ir.aten.node import Node
from compiler.ir.graph.builder import Builder

Handler: TypeAlias = Callable[[Builder, Node], Any]
"""Gives a tensor (Value), a plain value, or lists and tuples of them; a sequence for a node of
several outputs.
"""
Viewer: TypeAlias = Callable[[Builder, Node], Step]
"""Gives how the view follows from `self`."""

TENSOR: dict[str, Handler] = {}
"""Operators with a tensor among their arguments, or that make one."""
VIEW: dict[str, Viewer] = {}
"""Operators whose result shares the memory of their first argument."""
PLAIN: dict[str, Handler] = {}
"""Operators on numbers, strings and containers."""
CONTROL: dict[str, Handler] = {}
"""Branches, loops and attributes: they read blocks and write outputs themselves."""
OVERLAPPING = frozenset(
    f"aten::{name}" for name in ("as_strided", "broadcast_to", "expand", "expand_as", "unfold")
)
"""Views whose elements may be one in memory."""
INPLACE_BITS = frozenset(f"aten::__i{name}__" for name in ("and", "or", "xor", "lshift", "rshift"))
"""Those in-place operators that no underscore tells."""
SHAPE_ONLY = frozenset(
    f"aten::{name}"
    for name in (
        *("clone", "contiguous", "flatten", "ravel", "reshape"),
        *("dim", "len", "ndimension", "numel", "size", "sym_numel", "sym_size"),
    )
)
"""Operators beside views for which a tensor's elements may be of any kind."""
REFUSED: dict[str, str] = {}
"""Operators refused by name, with the reason."""


def op(*names: str) -> Callable[[Handler], Handler]:
    """Register a function of tensors under its aten names."""
    return _into(TENSOR, names)


def view(*names: str) -> Callable[[Viewer], Viewer]:
    """Register an operator whose result is a view of its first argument."""

    def register(viewer: Viewer) -> Viewer:
        VIEW.update(dict.fromkeys((qualify(name) for name in names), viewer))
        return viewer

    return register


def plain(*names: str) -> Callable[[Handler], Handler]:
    """Register a function of plain values."""
    return _into(PLAIN, names)


def control(*names: str) -> Callable[[Handler], Handler]:
    """Register a node that handles its blocks itself."""
    return _into(CONTROL, names)


def refuse(*names: str, why: str) -> None:
    """Register operators that are refused, with a reason a user understands."""
    REFUSED.update(dict.fromkeys((qualify(name) for name in names), why))


def _into(table: dict[str, Handler], names: Sequence[str]) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        table.update(dict.fromkeys((qualify(name) for name in names), handler))
        return handler

    return register


def qualify(name: str) -> str:
    """`aten::name` for a bare name."""
    return name if "::" in name else f"aten::{name}"


def functional_form(kind: str) -> str | None:
    """`aten::add` for `aten::add_`, None where the kind is not an in-place operator."""
    if kind in INPLACE_BITS:
        return kind.replace("__i", "__")
    return kind[:-1] if kind.endswith("_") and not kind.endswith("__") else None


def is_of_shapes(kind: str) -> bool:
    """True for an operator that rearranges elements, or asks for their number."""
    return kind in VIEW or kind in SHAPE_ONLY


def is_covered(kind: str) -> bool:
    """True if any table serves an operator."""
    base = functional_form(kind)
    return any(kind in table for table in (TENSOR, VIEW, PLAIN, CONTROL)) or (
        base is not None and base in {**TENSOR, **VIEW}
    )


def names() -> list[str]:
    """Every operator served, in order."""
    return sorted({*TENSOR, *VIEW, *PLAIN, *CONTROL})


def family(name: str) -> str:
    """The module that serves an operator."""
    handler = next(table[name] for table in (CONTROL, VIEW, TENSOR, PLAIN) if name in table)
    return str(handler.__module__).rpartition(".")[2]
