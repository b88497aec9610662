"""The nodes of a TorchScript model as an import would read them, without compiling: for
`relaxd inspect`.
"""

from collections import Counter
from typing import Any

from compiler.errors import CompileError
from compiler.ir.aten import operators  # noqa: F401  fills the registry
from compiler.ir.aten.node import label_of
from compiler.ir.aten.support import walk, why_not
from compiler.ir.imported import Imported
from compiler.ir.torchscript.arguments import arguments_of, names_in, written_attributes
from compiler.ir.torchscript.loading import Program
from compiler.ir.torchscript.reader import read
from relaxd.contract.request import CompileRequest


def inspect(program: Program, request: CompileRequest) -> dict[str, Any]:
    """A JSON document as that of ONNX models, with `arguments` (name to torch's type) and `state`
    (attributes that calls change).

    A node has its `op`, whether it is `supported`, `why` not, and its outputs' dtypes and symbolic
    shapes (`outputs`) as far as the import got. `error` is the failure that stops the import of a
    model whose operators are all known.
    """
    trace: list[dict[str, Any]] = []
    imported, error = _attempt(program, request, trace)
    shapes = {entry["node"]: entry["outputs"] for entry in trace}
    nodes = [
        _node(raw, shapes, error) for raw in walk(program.graph) if raw.kind() != "prim::Constant"
    ]
    arguments = arguments_of(program)
    return {
        "supported": error is None,
        "opsets": {},
        "arguments": {argument.name: argument.type for argument in arguments},
        "state": written_attributes(program),
        "inputs": [spec.to_json() for spec in imported.inputs]
        if imported
        else [name for argument in arguments for name in names_in(argument)],
        "outputs": [spec.to_json() for spec in imported.outputs] if imported else [],
        "dims": {dim.name: dim.to_json() for dim in imported.dims} if imported else {},
        "operators": dict(sorted(Counter(node["op"] for node in nodes).items())),
        "nodes": nodes,
        "error": error,
    }


def _attempt(
    program: Program, request: CompileRequest, trace: list[dict[str, Any]]
) -> tuple[Imported | None, dict[str, Any] | None]:
    try:
        return read(program, request, trace), None
    except CompileError as error:
        return None, error.failure.to_json()


def _node(raw: Any, shapes: dict[str, list[str]], error: dict[str, Any] | None) -> dict[str, Any]:
    label = label_of(raw)
    reason = why_not(raw.kind()) or (
        error["message"] if error and error.get("node") == label else None
    )
    node: dict[str, Any] = {"node": label, "op": raw.kind(), "supported": reason is None}
    if reason is not None:
        node["why"] = reason
    if label in shapes:
        node["outputs"] = shapes[label]
    return node
