"""Describes a program by what its file says, without importing it: for `relaxd inspect`. Neither
torch nor TVM is needed.
"""

from typing import Any

from compiler.errors import CompileError
from compiler.ir.inspecting import attempt, count_operators
from compiler.ir.pt2.dims import Declared, declare_program, substitute
from compiler.ir.pt2.graph import Node, Value
from compiler.ir.pt2.lines import user_position
from compiler.ir.pt2.nodes import label_of, lacks, read_graph, states_of, walk
from compiler.ir.pt2.program import Program, axis_of
from compiler.ir.pt2.tensors import DTYPES
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest


def inspect(program: Program, request: CompileRequest) -> dict[str, Any]:
    """A JSON document as that of ONNX models, with `state` (buffers that calls change).

    A node has its `op`, whether it is `supported`, `why` not, its outputs' dtypes and symbolic
    shapes, and the user's line (`source`). `error` is what is wrong with the declarations.
    """
    block, values = read_graph(program)
    states = states_of(program, block, values)
    declared, error = attempt(lambda: declare_program(program, states, request))
    why = {lack["node"]: lack["why"] for lack in lacks(block)}
    nodes = [_node(node, program, declared, why) for node in walk(block)]
    dims = {dim.name: dim for dim in declared.request.dims} if declared else {}
    names = (
        [name for spec in declared.specs for axis in spec.shape for name in sorted(axis.dims)]
        if declared
        else []
    )
    return {
        "supported": not why and error is None,
        "opsets": {},
        "state": [state.path for state in states],
        "inputs": [spec.to_json() for spec in declared.specs]
        if declared
        else [argument.name for argument in program.arguments],
        "outputs": _outputs(program, declared),
        "dims": {name: dims[name].to_json() for name in dict.fromkeys(names) if name in dims},
        "operators": count_operators(nodes),
        "nodes": nodes,
        "error": error,
    }


def _outputs(program: Program, declared: Declared | None) -> list[Any]:
    if declared is None:
        return [name for name, _ in program.outputs]
    outputs = []
    for name, argument in program.outputs:
        spec = _spec(name, argument.get("as_tensor", {}).get("name"), program, declared)
        outputs.append(name if spec is None else spec.to_json())
    return outputs


def _node(
    node: Node, program: Program, declared: Declared | None, why: dict[str, str]
) -> dict[str, Any]:
    label = label_of(node)
    document: dict[str, Any] = {"node": label, "op": node.kind(), "supported": label not in why}
    if label in why:
        document["why"] = why[label]
    if declared is not None:
        document["outputs"] = [_shown(value, program, declared) for value in _flat(node.outputs())]
    line = user_position(node.trace)
    return document if line is None else {**document, "source": line}


def _flat(values: list[Value]) -> list[Value]:
    return [item for value in values for item in (value.items or [value])]


def _shown(value: Value, program: Program, declared: Declared) -> str:
    spec = _spec(value.name, value.name, program, declared)
    if spec is None:
        return str(value.kind)
    return f"{spec.dtype}[{','.join(axis.text for axis in spec.shape)}]"


def _spec(name: str, value: str | None, program: Program, declared: Declared) -> TensorSpec | None:
    """A tensor as the file describes it; None for what is none, or is of another kind than ours."""
    meta = program.document["tensor_values"].get(value)
    if meta is None or meta["dtype"] not in DTYPES:
        return None
    try:
        axes = tuple(substitute(axis_of(size), declared.symbols) for size in meta["sizes"])
    except CompileError:
        return None
    return TensorSpec(name, DTYPES[meta["dtype"]], axes)
