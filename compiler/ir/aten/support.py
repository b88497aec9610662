"""Which nodes of a program have no way in, found by walking it without importing anything."""

from collections.abc import Iterator
from typing import Any, NoReturn

from compiler.errors import ImportFailed
from compiler.ir.aten import registry
from compiler.ir.aten.node import label_of

SHOWN = 20
"""An error message names this many operators; its details name every node."""


def walk(block: Any) -> Iterator[Any]:
    """Every node, those of inner blocks too."""
    for raw in block.nodes():
        yield raw
        for inner in raw.blocks():
            yield from walk(inner)


def why_not(kind: str) -> str | None:
    """Why an operator cannot be imported, None where it can."""
    if kind == "prim::Constant" or registry.is_covered(kind):
        return None
    base = registry.functional_form(kind)
    return (
        registry.REFUSED.get(kind)
        or (registry.REFUSED.get(base) if base else None)
        or f"no importer for {kind}"
    )


def lacks(graph: Any) -> list[dict[str, str]]:
    """Every node that no handler serves: its node, op and why."""
    reasons = [(label_of(raw), raw.kind(), why_not(raw.kind())) for raw in walk(graph)]
    return [
        {"node": node, "op": kind, "why": why} for node, kind, why in reasons if why is not None
    ]


def check(graph: Any) -> None:
    """Raise ImportFailed naming every operator without a way in, if one of them stands outside all
    branches and loops.
    """
    for raw in graph.nodes():
        if why_not(raw.kind()) is not None:
            refuse(graph, label_of(raw), raw.kind())


def refuse(graph: Any, node: str, kind: str) -> NoReturn:
    """Raise ImportFailed for a node that has no way in; it names every such operator of
    the graph.
    """
    refuse_all(lacks(graph), node, kind)


def refuse_all(missing: list[dict[str, str]], node: str, kind: str) -> NoReturn:
    """Raise ImportFailed at a node, naming every one that has no way in."""
    reasons = {lack["op"]: lack["why"] for lack in missing} or {
        kind: "no importer for these arguments"
    }
    shown = "; ".join(f"{name}: {why}" for name, why in list(reasons.items())[:SHOWN])
    more = f"; and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
    count = "1 operator is" if len(reasons) == 1 else f"{len(reasons)} operators are"
    raise ImportFailed(
        f"{count} not supported: {shown}{more}",
        reason="unsupported_op",
        node=node,
        op=kind,
        hint="`relaxd inspect` lists every node of the model",
        unsupported=missing or [{"node": node, "op": kind, "why": reasons[kind]}],
    )
