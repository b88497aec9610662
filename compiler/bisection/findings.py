"""What a search found, as JSON and in a sentence."""

from __future__ import annotations

from typing import Any

from compiler.bisection.search import Found
from compiler.ir.onnx.model.nodes import Graph


def findings(graph: Graph, found: Found) -> dict[str, Any]:
    """`node`, `op` and `value` where one node is found, else `first` and `last`, between which it
    lies; `nodes`, how many the least model has.
    """
    size = {"nodes": len(found.cut.nodes)} if found.cut else {}
    if found.value is None:
        return {"first": graph.label(found.first), "last": graph.label(found.last), **size}
    return {
        "node": graph.label(found.last),
        "op": graph.op(found.last),
        "value": found.value,
        **size,
    }


def sentence(document: dict[str, Any], stopped: str | None) -> str:
    """What `findings` says, for people.

    stopped: why the search did not come to its end, None where it did.
    """
    why = f", where the search stopped: {stopped}" if stopped else ""
    match document:
        case {"node": node, "op": op, "value": value}:
            named = f" ({value!r})" if value != node else ""
            return f"the first node whose output{named} departs is {node!r} ({op})"
        case {"first": first, "last": last, "nodes": _}:
            return f"the outputs depart between the nodes {first!r} and {last!r}{why}"
    if stopped:
        return f"the node was not found: {stopped}"
    return "no part of the model departs where it is fed the reference's values"
