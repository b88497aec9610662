"""The nodes of a model as an import would read them, without compiling: for `relaxd inspect`."""

from typing import Any

import onnx

from compiler.errors import CompileError
from compiler.ir.files.node_labels import label_of, op_of
from compiler.ir.imported import Imported
from compiler.ir.onnx import operators  # noqa: F401  fills the registry
from compiler.ir.onnx.reader import read
from compiler.ir.onnx.support import lacks
from relaxd.contract.request import CompileRequest


def inspect(model: onnx.ModelProto, request: CompileRequest) -> dict[str, Any]:
    """A JSON document: `supported`, `inputs`, `outputs`, `dims`, `opsets`, `operators` (counts),
    `nodes`, `error`.

    A node has its `op`, whether it is `supported`, `why` not, and its outputs' dtypes and symbolic
    shapes (`outputs`) as far as the import got. `error` is the failure that stops the import of a
    model whose operators are all known.
    """
    why = {lack.node: lack.why for lack in lacks(model)}
    trace: list[dict[str, Any]] = []
    imported, error = _attempt(model, request, trace)
    shapes = {entry["node"]: entry["outputs"] for entry in trace}
    nodes = [_node(proto, why, shapes, error) for proto in model.graph.node]
    listed = {node["node"] for node in nodes}
    nodes += [
        {"node": lack.node, "op": lack.op, "supported": False, "why": lack.why}
        for lack in lacks(model)
        if lack.node not in listed
    ]
    return {
        "supported": not why and error is None,
        "opsets": {o.domain or "ai.onnx": o.version for o in model.opset_import},
        "inputs": [spec.to_json() for spec in imported.inputs]
        if imported
        else [value.name for value in model.graph.input],
        "outputs": [spec.to_json() for spec in imported.outputs]
        if imported
        else [value.name for value in model.graph.output],
        "dims": {dim.name: dim.to_json() for dim in imported.dims} if imported else {},
        "operators": _counts(nodes),
        "nodes": nodes,
        "error": error,
    }


def _attempt(
    model: onnx.ModelProto, request: CompileRequest, trace: list[dict[str, Any]]
) -> tuple[Imported | None, dict[str, Any] | None]:
    try:
        return read(model, request, trace), None
    except CompileError as error:
        return None, error.failure.to_json()


def _node(
    proto: onnx.NodeProto,
    why: dict[str, str],
    shapes: dict[str, list[str]],
    error: dict[str, Any] | None,
) -> dict[str, Any]:
    label = label_of(proto)
    reason = why.get(label) or (error["message"] if error and error.get("node") == label else None)
    node: dict[str, Any] = {"node": label, "op": op_of(proto), "supported": reason is None}
    if reason is not None:
        node["why"] = reason
    if label in shapes:
        node["outputs"] = shapes[label]
    return node


def _counts(nodes: list[dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node["op"]] = counts.get(node["op"], 0) + 1
    return dict(sorted(counts.items()))
