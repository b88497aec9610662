"""Where indices come from in a graph: followed back through operators that only move
them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compiler.ir.shapes.index_bounds import Limit, without_coordinates

PASS_THROUGH = frozenset(
    f"aten::{name}"
    for name in (
        "to", "view", "reshape", "flatten", "unsqueeze", "squeeze", "slice", "select", "expand",
        "transpose", "permute", "t", "contiguous",
        "clone", "clamp", "narrow", "repeat", "long", "int", "type_as", "detach", "alias",
        "expand_as", "chunk", "split",
        "Int", "IntImplicit", "ScalarImplicit", "item",
    )
)  # fmt: skip
"""Operators whose first argument's elements come out unchanged."""


def sources(
    names: Mapping[str, str], indexed: Sequence[tuple[Any, Limit]]
) -> Iterator[tuple[str | None, Limit]]:
    """Every use of a torch value as an index: the argument that it comes from, by what the graph
    calls it, None for another value, and the limit.
    """
    for raw, limit in ((part, limit) for index, limit in indexed for part in _parts(index)):
        yield names.get(_source(raw).debugName()), without_coordinates(limit)


def _parts(raw: Any) -> list[Any]:
    """The values in a list that the graph makes right there, else the value itself."""
    node = raw.node()
    return list(node.inputs()) if node.kind() == "prim::ListConstruct" else [raw]


def _source(raw: Any) -> Any:
    while raw.node().kind() in PASS_THROUGH:
        raw = next(iter(raw.node().inputs()))
    return raw
