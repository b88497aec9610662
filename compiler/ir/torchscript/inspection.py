"""The nodes of a TorchScript model as an import would read them, without compiling: for
`relaxd inspect`.
"""

from typing import Any

from compiler.ir.aten import operators  # noqa: F401  fills the registry
from compiler.ir.aten.node import label_of
from compiler.ir.aten.support import walk, why_not
from compiler.ir.inspecting import attempt, count_operators, describe_interface, describe_node
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
    imported, error = attempt(lambda: read(program, request, trace))
    shapes = {entry["node"]: entry["outputs"] for entry in trace}
    nodes = [
        describe_node(label_of(raw), raw.kind(), why_not(raw.kind()), shapes, error)
        for raw in walk(program.graph)
        if raw.kind() != "prim::Constant"
    ]
    arguments = arguments_of(program)
    return {
        "supported": error is None,
        "opsets": {},
        "arguments": {argument.name: argument.type for argument in arguments},
        "state": written_attributes(program),
        **describe_interface(
            imported, [name for argument in arguments for name in names_in(argument)], []
        ),
        "operators": count_operators(nodes),
        "nodes": nodes,
        "error": error,
    }
