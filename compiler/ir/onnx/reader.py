"""Reads a whole ONNX model into a Relax module: inputs, nodes, outputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from compiler.errors import ImportFailed
from compiler.ir.caches import merge_uses
from compiler.ir.forks import explore
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.output import close, finish
from compiler.ir.graph.parameters import parameters_of
from compiler.ir.graph.signature import FileInput, check_names, declare, named_axes, specs_of
from compiler.ir.graph.values import Known, Value
from compiler.ir.imported import Imported
from compiler.ir.onnx import (
    indices,
    operators,  # noqa: F401  fills the registry
    support,
)
from compiler.ir.onnx.inputs import formals_of
from compiler.ir.onnx.model.expansions import without_calls
from compiler.ir.onnx.model.item_names import item_name
from compiler.ir.onnx.model.kv_cache import plan_kv_caches
from compiler.ir.onnx.model.lists import Items, Stacked
from compiler.ir.onnx.model.opsets import opsets_of
from compiler.ir.onnx.model.walking import walk
from compiler.ir.onnx.scope import Model, Scope
from compiler.ir.shapes.facts import Facts
from compiler.ir.shapes.index_bounds import collect
from relaxd.contract.options import Precision, StateForm
from relaxd.contract.request import CompileRequest


def read(
    model: onnx.ModelProto,
    request: CompileRequest,
    trace: list[dict[str, Any]] | None = None,
) -> Imported:
    """Import a model under a request; `trace` collects every node with its inferred shapes.

    Raises ImportFailed naming the node or the declaration at fault.
    """
    if trace is None:
        support.check(model)
    flat = without_calls(model)
    return explore(lambda assumed: _read(flat, request, trace, assumed))


def _read(
    model: onnx.ModelProto,
    request: CompileRequest,
    trace: list[dict[str, Any]] | None,
    assumed: Mapping[str, bool],
) -> Imported:
    graph = model.graph
    if trace is not None:
        trace.clear()
    formals = formals_of(graph, request)
    formal = [pairs for each in formals for pairs in each.parts]
    check_names("inputs", (spec.name for spec in request.inputs), (f.name for f in formal))
    check_names("consts", (name for name, _ in request.consts), (f.name for f in formal))
    consts = dict(request.consts)
    specs = specs_of([pairs for pairs in formal if pairs.name not in consts], request)
    lifting = plan_kv_caches(graph, specs, request) if _lifts(request) else None
    if lifting is not None:
        specs, request = list(lifting.specs), lifting.request
    facts = Facts()
    shapes = declare(facts, specs, request)
    builder = Builder(facts)
    shared = Model(
        opsets_of(model.opset_import),
        {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions},
        named_axes(facts, request),
        trace=trace,
        assumed=assumed,
        ranks={
            v.name: len(v.type.tensor_type.shape.dim)
            for v in (*graph.value_info, *graph.output)
            if v.type.tensor_type.HasField("shape")
        },
        used=_used(graph),
        custom={operator.key: operator for operator in request.operators},
    )
    scope = Scope(builder, shared)
    scope.load_initializers(graph)
    parameters = parameters_of(facts, specs, shapes)
    scope.values.update(
        {pairs.name: _fixed(pairs, consts[pairs.name]) for pairs in formal if pairs.name in consts}
    )
    with builder.bb.function("main", [*parameters.variables, builder.seed.expr]):
        scope.values.update(
            {
                spec.name: tensor
                for spec, tensor in zip(specs, parameters.tensors(builder), strict=True)
            }
        )
        if lifting is not None:
            lifting.own(builder, scope.values)
        scope.values.update({each.name: each.content(scope.values) for each in formals})
        scope.run(graph.node)
        pairs = [pair for output in graph.output for pair in _outputs(scope, output.name)]
        outputs = close(builder, lifting.outputs(builder, pairs) if lifting else pairs)
    uses = merge_uses(shared.caches, {spec.name for spec in specs})
    in_place = lifting.describe(builder, uses, outputs) if lifting else None
    return finish(
        builder,
        specs,
        outputs,
        collect(indices.uses(shared), {spec.name for spec in specs}),
        quantized=builder.quantized
        or (builder.quantizes_blocks and not _reference_quantizes(request)),
        caches=uses,
        in_place=in_place,
        stacks=builder.stacks,
    )


def _lifts(request: CompileRequest) -> bool:
    return request.options.state is StateForm.LIFTED


def _reference_quantizes(request: CompileRequest) -> bool:
    """True if the reference quantizes by nodes of its own, so that its numbers are to be met as
    those of any model.
    """
    return request.options.precision is Precision.INT8


def _used(graph: onnx.GraphProto) -> set[str]:
    """The names that nodes, those of subgraphs too, and outputs read."""
    read = {name for proto in walk(graph.node) for name in proto.input}
    inner = {
        output.name
        for proto in walk(graph.node)
        for attribute in proto.attribute
        for body in (attribute.g, *attribute.graphs)
        for output in body.output
    }
    return read | inner | {output.name for output in graph.output}


def _fixed(spec: FileInput, value: Any) -> Known:
    """A const of the request, in the input's dtype and shape; axes of any size become 1."""
    shape = tuple(axis if isinstance(axis, int) and axis > 0 else 1 for axis in spec.axes or ())
    try:
        return Known(np.full(shape, value).astype(np.dtype(spec.dtype)), spec.dtype)
    except (TypeError, ValueError) as error:
        raise ImportFailed(
            f"const {spec.name!r} cannot be {value!r}: the input is {spec.dtype}",
            reason="const",
            field=f"consts.{spec.name}",
        ) from error


def _outputs(scope: Scope, name: str) -> list[tuple[str, Value]]:
    """The tensors of an output by name: the items of a sequence are numbered."""
    try:
        content = scope.lookup(name)
    except KeyError:
        raise ImportFailed(
            f"no node produces the output {name!r}", reason="dangling", node=name
        ) from None
    match content:
        case None:
            raise ImportFailed(
                f"the output {name!r} is an optional value that is never there",
                reason="unsupported_output",
            )
        case Stacked():
            raise ImportFailed(
                f"only run time knows how many items the output {name!r} has",
                reason="unsupported_output",
                hint="make one tensor of them with ConcatFromSequence",
            )
        case Items():
            return [(item_name(name, i), value) for i, value in enumerate(content.values)]
    return [(name, content)]
