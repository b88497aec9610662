"""Reads a TorchScript program into a Relax module: arguments, attributes, nodes, outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.errors import ImportFailed
from compiler.ir.forks import explore
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.output import close, finish
from compiler.ir.graph.parameters import parameters_of
from compiler.ir.graph.values import Value
from compiler.ir.imported import Imported
from compiler.ir.shapes.facts import Facts
from compiler.ir.shapes.index_bounds import collect
from compiler.ir.shapes.symbols import extent_of
from compiler.ir.torchscript import (
    indices,
    operators,  # noqa: F401  fills the registry
    support,
)
from compiler.ir.torchscript.arguments import arguments_of, attribute, written_attributes
from compiler.ir.torchscript.constants import convert
from compiler.ir.torchscript.inputs import Inputs, argument_value, declare_inputs
from compiler.ir.torchscript.loading import Program
from compiler.ir.torchscript.memory import DictBox, ListBox, Memory, Ref, Slot, Stack
from compiler.ir.torchscript.scope import Model, Scope
from compiler.ir.torchscript.structure import Number, kind_of, number_of, scalar_tensor
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
    table = request.dim_table
    shapes = {
        name: [
            facts.simplify(extent_of(axis, lambda dim: facts.dim(dim, table.get(dim))))
            for axis in axes
        ]
        for name, axes in request.shapes
    }
    builder = Builder(facts)
    scope = Scope(
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
    uses = indices.uses(program, scope.model.indexed)
    bounds = collect(uses, {spec.name for spec in inputs.specs})
    return finish(builder, inputs.specs, outputs, bounds)


def refuse_repeats(names: list[str]) -> None:
    """Raise ImportFailed where two outputs have one name, as a key `a_0` beside a tuple under the
    key `a`.
    """
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ImportFailed(
            f"two outputs are called {repeated[0]!r}",
            reason="unsupported_output",
            hint="give the keys of the returned dict other names",
        )


def _bind_arguments(scope: Scope, program: Program, inputs: Inputs) -> None:
    """forward's arguments; tensors among them lie densely in memory."""
    formal = list(program.graph.inputs())
    scope.bind(formal[0], scope.memory)
    for raw, argument in zip(formal[1:], arguments_of(program), strict=True):
        scope.bind(raw, scope.wrap(argument_value(scope.builder, argument, inputs)))


def _bind_attributes(scope: Scope, program: Program, inputs: Inputs) -> dict[str, Slot]:
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


def _flattened(scope: Scope, value: Any, suffix: str) -> list[tuple[str, Any]]:
    """The tensors in what forward returns, each with the suffix of its name: `_0` in a tuple or
    list, the key in a dict.
    """
    content = scope.memory.content(value) if isinstance(value, (ListBox, DictBox)) else value
    if isinstance(content, dict):
        items = [(f"{suffix}_{key}" if suffix else str(key), item) for key, item in content.items()]
    elif isinstance(content, tuple):
        items = [(f"{suffix}_{index}", item) for index, item in enumerate(content)]
    elif isinstance(content, Stack):
        raise ImportFailed(
            "forward returns a list whose length only run time knows",
            reason="unsupported_output",
            hint="stack it into one tensor",
        )
    else:
        return [] if value is None else [(suffix, value)]
    return [pair for name, item in items for pair in _flattened(scope, item, name)]


def tensor_of(scope: Scope, name: str, value: Any) -> Value:
    """An output as a tensor; raises ImportFailed for what is neither one nor a number."""
    if isinstance(value, Ref):
        return scope.memory.read(value)
    if isinstance(value, str):
        raise ImportFailed(f"the output {name!r} is a string", reason="unsupported_output")
    number = kind_of(value)
    if number is None:
        raise ImportFailed(
            f"the output {name!r} is neither a tensor nor a number", reason="unsupported_output"
        )
    return scalar_tensor(scope.builder, value, number)
