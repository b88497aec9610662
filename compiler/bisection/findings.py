"""The findings of a search, as JSON and in a sentence."""

from typing import Any

from compiler.bisection.search import Location
from compiler.ir.onnx.model.nodes import Graph


def findings(graph: Graph, location: Location) -> dict[str, Any]:
    """`node`, `op` and `value` where one node is found, else `first` and `last`, between which it
    lies; `nodes`, how many the least model has.
    """
    size = {"nodes": len(location.cut.nodes)} if location.cut else {}
    if location.value is None:
        return {"first": graph.label(location.first), "last": graph.label(location.last), **size}
    return {
        "node": graph.label(location.last),
        "op": graph.op(location.last),
        "value": location.value,
        **size,
    }


def sentence(document: dict[str, Any], stopped: str | None) -> str:
    """Say `findings` in a sentence for people.

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
