"""Reads a `.pt2` program into a Relax module: inputs, stored tensors, nodes, outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tvm.ir import Expr as PrimExpr

from compiler.errors import ImportFailed
from compiler.ir.aten import (
    operators,  # noqa: F401  fills the registry
    support,
)
from compiler.ir.aten.indices import sources
from compiler.ir.aten.memory import Memory, Ref
from compiler.ir.aten.outputs import refuse_repeats, tensor_of
from compiler.ir.aten.scope import Model
from compiler.ir.forks import explore
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.output import close, finish
from compiler.ir.graph.parameters import parameters_of
from compiler.ir.graph.signature import declare, named_axes
from compiler.ir.graph.values import Known
from compiler.ir.imported import Imported
from compiler.ir.pt2.dims import Declared, declare_program
from compiler.ir.pt2.graph import Block, Value
from compiler.ir.pt2.guards import condition_of
from compiler.ir.pt2.nodes import label_of, lacks, read_graph, states_of, walk
from compiler.ir.pt2.program import Program
from compiler.ir.pt2.scope import ProgramScope, quoting_line
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.facts import Facts
from compiler.ir.shapes.index_bounds import Limit, collect
from relaxd.contract.request import CompileRequest


def read(
    program: Program, request: CompileRequest, trace: list[dict[str, Any]] | None = None
) -> Imported:
    """Import a program under a request; `trace` collects every node with its inferred shapes.

    Raises ImportFailed naming the node, with the user's line, or the declaration at fault.
    """
    block, values = read_graph(program)
    check_operators(block)
    declared = declare_program(program, states_of(program, block, values), request)
    return explore(lambda assumed: _read(program, block, values, declared, trace, assumed))


def check_operators(block: Block) -> None:
    """Raise ImportFailed naming every operator that nothing imports, and the line of the first."""
    missing = lacks(block)
    if missing:
        first = next(node for node in walk(block) if label_of(node) == missing[0]["node"])
        with quoting_line(first):
            support.refuse_all(missing, label_of(first), first.kind())


def _read(
    program: Program,
    block: Block,
    values: Mapping[str, Value],
    declared: Declared,
    trace: list[dict[str, Any]] | None,
    assumed: Mapping[str, bool],
) -> Imported:
    if trace is not None:
        trace.clear()
    facts, request = Facts(), declared.request
    shapes = declare(facts, declared.specs, request)
    names = named_axes(facts, request)
    builder = Builder(facts)
    scope = ProgramScope(
        builder, Memory(builder), Model(block, names, trace=trace, assumed=assumed)
    )
    parameters = parameters_of(facts, declared.specs, shapes)
    with builder.bb.function("main", [*parameters.variables, builder.seed.expr]):
        tensors = parameters.tensors(builder)
        inputs = dict(zip((spec.name for spec in declared.specs), tensors, strict=True))
        for argument in program.arguments:
            scope.bind(values[argument.value], scope.memory.argument(inputs[argument.name]))
        for stored in program.stored:
            initial = Known(stored.data, stored.data.dtype.name)
            is_input = stored.path in declared.states
            content = inputs[stored.path] if is_input else initial
            scope.bind(values[stored.value], scope.wrap(content))
        _require_guards(builder, program, {name: value.shape for name, value in inputs.items()})
        results = scope.run(block)
        named = [
            (name, tensor_of(scope, name, value))
            for (name, _), value in zip(program.outputs, results, strict=True)
        ]
        named += [(path, _state(scope, program, values, path)) for path in declared.states]
        refuse_repeats([name for name, _ in named])
        outputs = close(builder, named)
    bounds = collect(_uses(program, scope.model.indexed), {spec.name for spec in declared.specs})
    return finish(builder, declared.specs, outputs, bounds, quantized=builder.quantized)


def _require_guards(
    builder: Builder, program: Program, shapes: Mapping[str, tuple[Extent, ...]]
) -> None:
    for guard in program.guards:
        condition = condition_of(guard, shapes)
        if isinstance(condition, bool) and not condition:
            raise ImportFailed(
                f"the declared inputs contradict what the program was exported for: {guard[:200]}",
                reason="pt2_guard",
                hint="declare sizes that satisfy it, or export the program for others",
            )
        if isinstance(condition, PrimExpr):
            builder.require(condition, f"the program was exported for {guard[:200]}")


def _state(scope: ProgramScope, program: Program, values: Mapping[str, Value], path: str) -> Any:
    """A stored tensor after a call."""
    if path in program.mutated:
        result = scope.lookup(values[program.mutated[path]["as_tensor"]["name"]])
    else:
        stored = next(stored for stored in program.stored if stored.path == path)
        result = scope.lookup(values[stored.value])
    assert isinstance(result, Ref)
    return scope.memory.read(result)


def _uses(program: Program, indexed: list[tuple[Any, Limit]]) -> Iterator[tuple[str | None, Limit]]:
    """Every use of a value as an index: the input that it comes from, None for another value."""
    return sources({argument.value: argument.name for argument in program.arguments}, indexed)
