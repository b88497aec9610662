"""Which matmuls of a model multiply by weights that are to be rounded, and by which values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.ir.onnx.model.nodes import Graph
from compiler.ir.weights import WeightQuantization, digest_of

DEEPEST = 12288
"""Depths whose second moments are taken: the square of a greater one is a gigabyte and more, and
is held three times.
"""
READ = "rows of it are read"
TWICE = "matmuls multiply different values by it"
ELSEWHERE = "no matmul of the model's main graph multiplies by it"
_VIEWS = ("Identity", "Transpose")
DEEP = f"its sums have more than {DEEPEST} products"


@dataclass(frozen=True)
class Sites:
    """taps: by the name of a value, the digests of the weights that matmuls multiply it by;
    nearest: why the others are rounded to nearest, by digest; names: of the constants that hold a
    weight, with its digest.
    """

    taps: Mapping[str, tuple[bytes, ...]]
    nearest: Mapping[bytes, str]
    names: Mapping[str, bytes]


def with_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, in which matrices of Constant nodes of the main graph are initialisers: it
    is changed in place.
    """
    nodes = []
    for node in model.graph.node:
        values = [one.t for one in node.attribute if one.name == "value" and _is_matrix(one.t)]
        if node.op_type == "Constant" and values:
            values[0].name = node.output[0]
            model.graph.initializer.append(values[0])
        else:
            nodes.append(node)
    if len(nodes) < len(model.graph.node):
        graph = onnx.GraphProto()
        graph.node.extend(nodes)
        del model.graph.node[:]
        model.graph.node.extend(graph.node)
    return model


def sites_of(graph: Graph, roundings: Mapping[bytes, WeightQuantization]) -> Sites:
    """Those of the weights with these roundings."""
    arrays = {
        name: numpy_helper.to_array(tensor)
        for name, tensor in graph.constants.items()
        if isinstance(tensor, TensorProto) and _is_matrix(tensor)
    }
    names = {name: key for name, a in arrays.items() if (key := digest_of(a)) in roundings}
    uses: dict[bytes, list[str | None]] = {}
    for key, tap in _uses(graph, names, roundings):
        uses.setdefault(key, []).append(tap)
    nearest = dict.fromkeys(roundings.keys() - names.values(), ELSEWHERE)
    for name, key in names.items():
        array, axis = arrays[name], roundings[key].axis
        # A table and its transpose are stored once where they are rounded alike.
        tied = axis == 0 and digest_of(array.T) in roundings
        why = READ if tied else _objection(uses.get(key, []), array.shape[axis])
        if why is not None:
            nearest[key] = why
    taps: dict[str, list[bytes]] = {}
    for key, used in uses.items():
        if key not in nearest:
            taps.setdefault(str(used[0]), []).append(key)
    return Sites({tap: tuple(keys) for tap, keys in taps.items()}, nearest, names)


def _is_matrix(tensor: TensorProto) -> bool:
    return tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2


def _uses(
    graph: Graph, names: Mapping[str, bytes], roundings: Mapping[bytes, WeightQuantization]
) -> Iterator[tuple[bytes, str | None]]:
    """In the order of the nodes, a weight and the value that a matmul multiplies by it, or None
    where a node does anything else with it.
    """
    views = _views(graph, names)
    for node, taken in zip(graph.nodes, graph.takes, strict=True):
        if node.op_type in _VIEWS and node.output[0] in views:
            continue
        for name in taken:
            if name in views:
                key, turned = views[name]
                yield key, _tap(node, name, turned, roundings[key])


def _views(graph: Graph, names: Mapping[str, bytes]) -> dict[str, tuple[bytes, bool]]:
    """Values that are a weight: its digest, and whether they are its transpose."""
    views = {name: (key, False) for name, key in names.items()}
    for node in graph.nodes:
        if node.op_type in _VIEWS and node.domain in ("", "ai.onnx") and node.input[0] in views:
            key, turned = views[node.input[0]]
            order = [list(one.ints) for one in node.attribute if one.name == "perm"]
            swaps = node.op_type == "Transpose" and order != [[0, 1]]
            views[node.output[0]] = key, turned != swaps
    return views


def _tap(
    node: onnx.NodeProto, name: str, turned: bool, quantization: WeightQuantization
) -> str | None:
    """The value that the node multiplies by the weight, None where it does anything else."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain not in ("", "ai.onnx"):
        return None
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    if [*node.input].index(name) != 1 or node.input[0] == name or attributes.get("transA"):
        return None
    axis = int(turned != bool(attributes.get("transB")))
    return node.input[0] if axis == quantization.axis else None


def _objection(taps: Sequence[str | None], depth: int) -> str | None:
    """Why a weight with these uses is rounded to nearest, None where it is calibrated."""
    if not taps:
        return ELSEWHERE
    if None in taps:
        return READ
    if len(set(taps)) > 1:
        return TWICE
    return DEEP if depth > DEEPEST else None
