"""Which nodes of a model have no way in, found by walking it without importing anything."""

from dataclasses import dataclass

import onnx
from onnx import defs

from compiler.errors import ImportFailed
from compiler.ir.files.node_labels import label_of, op_of
from compiler.ir.onnx import registry
from compiler.ir.onnx.model.opsets import opsets_of
from compiler.ir.onnx.model.walking import walk

SHOWN = 20
"""An error message names this many nodes; its details name all."""


_LISTED = "`relaxd inspect` lists every node of the model"
_CUSTOM = "; C code of yours can compute the operators of other domains (--operators)"


@dataclass(frozen=True)
class Lack:
    """A node that cannot be imported, and why."""

    node: str
    op: str
    why: str


def lacks(model: onnx.ModelProto) -> list[Lack]:
    """Every node, in subgraphs and called functions too, that no handler, refusal aside, serves."""
    functions = {(f.domain, f.name): f for f in model.functions}
    opsets = opsets_of(model.opset_import)
    missing: dict[Lack, None] = {}
    for proto in walk(model.graph.node):
        why = _why(proto, opsets, functions, set())
        if why is not None:
            missing[Lack(label_of(proto), op_of(proto), why)] = None
    return list(missing)


def check(model: onnx.ModelProto) -> None:
    """Raise ImportFailed naming every node that cannot be imported; it carries the first one's name
    and operator.
    """
    missing = lacks(model)
    if not missing:
        return
    shown = "; ".join(f"{lack.node} ({lack.op}): {lack.why}" for lack in missing[:SHOWN])
    more = f"; and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    count = "1 node is" if len(missing) == 1 else f"{len(missing)} nodes are"
    raise ImportFailed(
        f"{count} not supported: {shown}{more}",
        reason="unsupported_op",
        node=missing[0].node,
        op=missing[0].op,
        hint=_LISTED + (_CUSTOM if any("." in lack.op for lack in missing) else ""),
        unsupported=[{"node": lack.node, "op": lack.op, "why": lack.why} for lack in missing],
    )


def _why(
    proto: onnx.NodeProto,
    opsets: dict[str, int],
    functions: dict[tuple[str, str], onnx.FunctionProto],
    calls: set[tuple[str, str]],
) -> str | None:
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    version = opsets.get(domain, 1)
    if registry.find(domain, proto.op_type, version) is not None:
        return None
    refused = registry.refusal(domain, proto.op_type)
    if refused is not None:
        return refused
    body = functions.get((proto.domain, proto.op_type))
    if body is not None and (proto.domain, proto.op_type) not in calls:
        return _body(body, opsets, functions, calls | {(proto.domain, proto.op_type)})
    if defs.has(proto.op_type, version, domain):
        schema = defs.get_schema(proto.op_type, version, domain)
        if schema.has_context_dependent_function:
            return None
        if schema.has_function:
            return _body(schema.function_body, opsets, functions, calls)
    return f"no importer for {op_of(proto)} at opset {version}"


def _body(
    body: onnx.FunctionProto,
    opsets: dict[str, int],
    functions: dict[tuple[str, str], onnx.FunctionProto],
    calls: set[tuple[str, str]],
) -> str | None:
    inner = {**opsets, **opsets_of(body.opset_import)}
    for proto in walk(body.node):
        why = _why(proto, inner, functions, calls)
        if why is not None:
            return f"its body needs {op_of(proto)}: {why}"
    return None
