"""Reads a TorchScript program into a Relax module: arguments, attributes, nodes, outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from compiler.errors import ImportFailed
from compiler.ir.aten import (
    operators,  # noqa: F401  fills the registry
    support,
)
from compiler.ir.aten.indices import sources
from compiler.ir.aten.memory import DictBox, ListBox, Memory, Parts, Slot, Stack
from compiler.ir.aten.outputs import refuse_repeats, tensor_of
from compiler.ir.aten.scope import Model
from compiler.ir.aten.structure import Number, number_of
from compiler.ir.forks import explore
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.output import close, finish
from compiler.ir.graph.parameters import parameters_of
from compiler.ir.graph.signature import named_axes
from compiler.ir.graph.values import Tensor
from compiler.ir.imported import Imported
from compiler.ir.shapes.facts import Facts
from compiler.ir.shapes.index_bounds import Limit, collect
from compiler.ir.torchscript.arguments import arguments_of, attribute, written_attributes
from compiler.ir.torchscript.constants import convert
from compiler.ir.torchscript.inputs import Inputs, argument_value, declare_inputs
from compiler.ir.torchscript.loading import Program
from compiler.ir.torchscript.scope import ScriptScope
from relaxd.contract.request import CompileRequest


def read(
    program: Program, request: CompileRequest, trace: list[dict[str, Any]] | None = None
) -> Imported:
    """Import a program under a request; `trace` collects every node with its inferred shapes.

    Raises ImportFailed naming the node or the declaration at fault.
    """
    if trace is None:
        support.check(program.graph)
    return explore(lambda assumed: _read(program, request, trace, assumed))


def _read(
    program: Program,
    request: CompileRequest,
    trace: list[dict[str, Any]] | None,
    assumed: Mapping[str, bool],
) -> Imported:
    if trace is not None:
        trace.clear()
    facts = Facts()
    inputs = declare_inputs(program, facts, request)
    shapes = named_axes(facts, request)
    builder = Builder(facts)
    scope = ScriptScope(
        builder, Memory(builder), Model(program.graph, shapes, trace=trace, assumed=assumed)
    )
    parameters = parameters_of(facts, inputs.specs, inputs.shapes)
    with builder.bb.function("main", [*parameters.variables, builder.seed.expr]):
        inputs.tensors.update(
            {
                spec.name: tensor
                for spec, tensor in zip(inputs.specs, parameters.tensors(builder), strict=True)
            }
        )
        _bind_arguments(scope, program, inputs)
        slots = _bind_attributes(scope, program, inputs)
        results = scope.run(program.graph)
        named = [
            (f"output{suffix}" if suffix[:1] in ("", "_") else suffix, value)
            for value in results
            for suffix, value in _flattened(scope, value, "")
        ]
        states = [(name, slot.value) for name, slot in slots.items() if name in inputs.tensors]
        refuse_repeats([name for name, _ in [*named, *states]])
        outputs = close(
            builder, [(name, tensor_of(scope, name, value)) for name, value in [*named, *states]]
        )
    bounds = collect(_uses(program, scope.model.indexed), {spec.name for spec in inputs.specs})
    return finish(builder, inputs.specs, outputs, bounds, quantized=builder.quantized)


def _bind_arguments(scope: ScriptScope, program: Program, inputs: Inputs) -> None:
    """forward's arguments; tensors among them lie densely in memory."""
    formal = list(program.graph.inputs())
    scope.bind(formal[0], scope.memory)
    for raw, argument in zip(formal[1:], arguments_of(program), strict=True):
        value = argument_value(scope.builder, argument, inputs)
        scope.bind(
            raw, scope.memory.argument(value) if isinstance(value, Tensor) else scope.wrap(value)
        )


def _bind_attributes(scope: ScriptScope, program: Program, inputs: Inputs) -> dict[str, Slot]:
    """Attributes that forward uses: an input where one is declared, else what the file holds."""
    slots = {}
    for path in written_attributes(program):
        value = inputs.tensors.get(path)
        saved = convert(attribute(program, path))
        if value is not None and isinstance(saved, (bool, int, float)):
            value = number_of(
                scope.builder,
                value,
                Number({bool: "bool", int: "int64", float: "float64"}[type(saved)]),
            )
        initial = inputs.consts.get(path, saved) if value is None else value
        slots[path] = scope.memory.cell(scope.wrap(initial), Slot)
    scope.model.slots = slots
    return slots


def _flattened(scope: ScriptScope, value: Any, suffix: str) -> list[tuple[str, Any]]:
    """The tensors in what forward returns, each with the suffix of its name: `_0` in a tuple or
    list, the key in a dict.
    """
    content = scope.memory.content(value) if isinstance(value, (ListBox, DictBox)) else value
    if isinstance(content, dict):
        items = [(f"{suffix}_{key}" if suffix else str(key), item) for key, item in content.items()]
    elif isinstance(content, tuple):
        items = [(f"{suffix}_{index}", item) for index, item in enumerate(content)]
    elif isinstance(content, (Stack, Parts)):
        raise ImportFailed(
            "forward returns a list whose length only run time knows",
            reason="unsupported_output",
            hint=content.hint,
        )
    else:
        return [] if value is None else [(suffix, value)]
    return [pair for name, item in items for pair in _flattened(scope, item, name)]


def _uses(program: Program, indexed: list[tuple[Any, Limit]]) -> Iterator[tuple[str | None, Limit]]:
    """Every use of a value as an index: the argument that it comes from, None for another value."""
    names = {
        raw.debugName(): argument.name
        for raw, argument in zip(program.graph.inputs(), program.schema.arguments, strict=True)
    }
    return sources(names, indexed)
