"""Every node of a graph, for those who only look."""

from collections.abc import Iterable, Iterator

import onnx


def walk(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs, at any depth."""
    for proto in nodes:
        yield proto
        for attribute in proto.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from walk(graph.node)
