"""Puts the nodes of a model in an order in which each comes after those whose values it reads.

ONNX demands that order of a file; ONNX Runtime, and so writers of files, do without.
"""

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import onnx

from compiler.errors import LoadError
from compiler.ir.files.node_labels import label_of

_SHOWN = 10


def sort_nodes(model: onnx.ModelProto) -> None:
    """Sort the nodes of the graph, of the graphs inside it and of functions in place, where they
    are out of order: the first that can come does. Raises LoadError for nodes that read one
    another's values in a circle.
    """
    for owner in (model.graph, *model.functions):
        _sort(owner)


def _sort(owner: Any) -> None:
    for node in owner.node:
        for graph in _graphs(node):
            _sort(graph)
    before = _producers(owner)
    if all(producer < index for index, producers in enumerate(before) for producer in producers):
        return
    order = _order(owner.node, before)
    nodes = [owner.node[index] for index in order]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del owner.node[:]
    owner.node.extend(copies)


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        # To look into a graph that is not there would make it.
        yield from (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs)


def _producers(owner: Any) -> list[set[int]]:
    """For each node, the indices of those whose values it reads."""
    producers: dict[str, int] = {}
    for index, node in enumerate(owner.node):
        for name in node.output:
            producers.setdefault(name, index)
    for name in ("", *_inputs_of(owner)):
        producers.pop(name, None)
    return [{producers[name] for name in _reads(node) if name in producers} for node in owner.node]


def _inputs_of(owner: Any) -> set[str]:
    """The names of a graph or function that have values before any node has run."""
    if isinstance(owner, onnx.FunctionProto):
        return set(owner.input)
    sparse = {tensor.values.name for tensor in owner.sparse_initializer}
    return {value.name for value in (*owner.input, *owner.initializer)} | sparse


def _reads(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, and those that graphs inside it read from outside."""
    names = set(node.input)
    for graph in _graphs(node):
        inner = {name for one in graph.node for name in _reads(one)}
        inner |= {value.name for value in graph.output}
        inner -= {name for one in graph.node for name in one.output}
        names |= inner - _inputs_of(graph)
    return names


def _order(nodes: Sequence[onnx.NodeProto], before: Sequence[set[int]]) -> list[int]:
    """The indices in the new order, by Kahn's algorithm; the lowest of those that can come next."""
    readers: list[list[int]] = [[] for _ in nodes]
    for index, producers in enumerate(before):
        for node in producers:
            readers[node].append(index)
    missing = [len(producers) for producers in before]
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for reader in readers[node]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        raise _circular(nodes, before, set(range(len(nodes))) - set(order))
    return order


def _circular(
    nodes: Sequence[onnx.NodeProto], before: Sequence[set[int]], left: set[int]
) -> LoadError:
    """Every node that is left reads a value of another that is, so that to go back leads around."""
    node, path = min(left), list[int]()
    while node not in path:
        path.append(node)
        node = min(before[node] & left)
    circle = path[path.index(node) :][::-1]
    labels = [label_of(nodes[index]) for index in circle]
    more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
    return LoadError(
        f"nodes read one another's values in a circle: {', '.join(labels[:_SHOWN])}{more}",
        reason="cycle",
        field="model",
        node=labels[0],
        op=nodes[circle[0]].op_type,
        hint="no order of the nodes can be run: export the model again",
    )
