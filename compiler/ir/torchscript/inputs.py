"""Arguments of forward and attributes that it keeps between calls: declared inputs, consts of the
request, or defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compiler.errors import ImportFailed
from compiler.ir.aten.structure import Number, number_of
from compiler.ir.graph.builder import Builder
from compiler.ir.graph.signature import FileInput, check_names, declare, specs_of
from compiler.ir.graph.values import Tensor
from compiler.ir.shapes.extents import Extent
from compiler.ir.shapes.facts import Facts
from compiler.ir.torchscript.arguments import (
    Argument,
    arguments_of,
    bare,
    names_in,
    written_attributes,
)
from compiler.ir.torchscript.constants import convert
from compiler.ir.torchscript.loading import Program
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest

_NUMBERS = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass
class Inputs:
    """The declared inputs, and the tensor that each name stands for."""

    specs: list[TensorSpec]
    shapes: list[tuple[Extent, ...]]
    consts: Mapping[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)


def declare_inputs(program: Program, facts: Facts, request: CompileRequest) -> Inputs:
    """The declared inputs with their shapes, in the order of forward's arguments, attributes behind
    them.
    """
    arguments = arguments_of(program)
    known = [name for argument in arguments for name in names_in(argument)]
    states = written_attributes(program)
    check_names(
        "inputs",
        (spec.name for spec in request.inputs),
        [*known, *states, *_listed(arguments, request)],
    )
    check_names("consts", (name for name, _ in request.consts), [*known, *states])
    consts, declared = dict(request.consts), {spec.name for spec in request.inputs}
    wanted = [name for argument in arguments for name in _wanted(argument, consts, declared)] + [
        name for name in states if name in declared
    ]
    dtypes = {spec.name: spec.dtype for spec in request.inputs}
    specs = specs_of(
        [FileInput(name, dtypes.get(name, "float32"), None) for name in wanted], request
    )
    return Inputs(specs, declare(facts, specs, request), consts)


def _listed(arguments: list[Argument], request: CompileRequest) -> list[str]:
    """Declared inputs that are items of a list argument: `name_0` and so on."""
    lists = {argument.name for argument in arguments if bare(argument).kind() == "ListType"}
    return [
        spec.name
        for spec in request.inputs
        if spec.name.rpartition("_")[0] in lists and spec.name.rpartition("_")[2].isdigit()
    ]


def _wanted(argument: Argument, consts: Mapping[str, Any], declared: set[str]) -> list[str]:
    """Names of the inputs that an argument is given by; raises ImportFailed for one that nothing
    gives.
    """
    kind = bare(argument).kind()
    if kind == "ListType":
        items: list[str] = []
        while f"{argument.name}_{len(items)}" in declared:
            items.append(f"{argument.name}_{len(items)}")
        return items
    names = names_in(argument)
    if argument.name in consts or all(name in declared for name in names):
        return [] if argument.name in consts else names
    if argument.has_default or argument.raw_type.kind() == "OptionalType":
        return []
    if argument.type in _NUMBERS:
        hint = f"fix it: --const {argument.name}={'16000' if argument.type == 'int' else 'VALUE'}"
        raise ImportFailed(
            f"the argument {argument.name!r} is {argument.type}, and nothing gives its value",
            reason="missing_input",
            field=f"consts.{argument.name}",
            hint=hint,
        )
    if kind not in ("TensorType", "TupleType"):
        raise ImportFailed(
            f"the argument {argument.name!r} is {argument.type}, which is not supported",
            reason="unsupported_input",
            field=f"inputs.{argument.name}",
        )
    return names


def argument_value(b: Builder, argument: Argument, inputs: Inputs) -> Any:
    """The value of an argument in the graph."""
    if argument.name in inputs.consts:
        return _fixed(argument, inputs.consts[argument.name])
    kind = bare(argument).kind()
    if kind == "ListType":
        items = [
            inputs.tensors[name]
            for index in range(len(inputs.tensors))
            if (name := f"{argument.name}_{index}") in inputs.tensors
        ]
        return (
            items
            if items or not (argument.has_default or argument.raw_type.kind() == "OptionalType")
            else convert(argument.default)
        )
    names = names_in(argument)
    if not all(name in inputs.tensors for name in names):
        return convert(argument.default)
    tensors = tuple(inputs.tensors[name] for name in names)
    if kind == "TupleType":
        return tensors
    if kind in ("IntType", "FloatType", "BoolType"):
        return number_of(
            b,
            tensors[0],
            {"IntType": Number.INT, "FloatType": Number.FLOAT, "BoolType": Number.BOOL}[kind],
        )
    return tensors[0]


def _fixed(argument: Argument, value: Any) -> Any:
    kind = str(bare(argument).annotation_str)
    wanted = _NUMBERS.get(kind)
    if wanted is None:
        raise ImportFailed(
            f"const {argument.name!r}: the argument is {kind}, only numbers, flags and strings "
            "are fixed",
            reason="const",
            field=f"consts.{argument.name}",
        )
    number = wanted(value)
    if number != value or (
        wanted is not float and type(number) is not type(value) and wanted is not bool
    ):
        raise ImportFailed(
            f"const {argument.name!r} cannot be {value!r}: the argument is {kind}",
            reason="const",
            field=f"consts.{argument.name}",
        )
    return number
