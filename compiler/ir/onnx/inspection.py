"""The nodes of a model as an import would read them, without compiling: for `relaxd inspect`."""

from typing import Any

import onnx

from compiler.ir.files.node_labels import label_of, op_of
from compiler.ir.inspecting import attempt, count_operators, describe_interface, describe_node
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
    imported, error = attempt(lambda: read(model, request, trace))
    shapes = {entry["node"]: entry["outputs"] for entry in trace}
    nodes = [
        describe_node(label := label_of(node), op_of(node), why.get(label), shapes, error)
        for node in model.graph.node
    ]
    listed = {node["node"] for node in nodes}
    nodes += [
        {"node": lack.node, "op": lack.op, "supported": False, "why": lack.why}
        for lack in lacks(model)
        if lack.node not in listed
    ]
    return {
        "supported": not why and error is None,
        "opsets": {o.domain or "ai.onnx": o.version for o in model.opset_import},
        **describe_interface(
            imported,
            [value.name for value in model.graph.input],
            [value.name for value in model.graph.output],
        ),
        "operators": count_operators(nodes),
        "nodes": nodes,
        "error": error,
    }
