"""Arguments of forward and attributes that it keeps between calls: declared inputs, consts of the request, or defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from compiler.errors import ImportFailed
from compiler.ir import extents as ex
from compiler.ir.builder import Builder
from compiler.ir.extents import Extent
from compiler.ir.facts import Facts
from compiler.ir.signature import FileInput, check_names, declare, identifier, spec_of
from compiler.ir.torchscript.constants import convert
from compiler.ir.torchscript.loading import Program
from compiler.ir.torchscript.structure import Number, number_of
from compiler.ir.values import Tensor
from relaxd.contract.request import CompileRequest
from relaxd.contract.tensors import TensorSpec

_NUMBERS = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True)
class Argument:
    """One argument of forward: torch's type in text, and its default where it has one."""

    name: str
    type: str
    raw_type: Any = None
    has_default: bool = False
    default: Any = None


@dataclass
class Inputs:
    """The graph's parameters, and what each name stands for."""

    specs: list[TensorSpec]
    shapes: list[tuple[Extent, ...]]
    consts: Mapping[str, Any]
    params: list[Any] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def arguments_of(program: Program) -> list[Argument]:
    """The arguments of forward without self."""
    found = []
    for argument in program.schema.arguments[1:]:
        default = argument.has_default_value()
        found.append(
            Argument(argument.name, str(argument.type), argument.type, default, convert(argument.default_value) if default else None)
        )
    return found


def names_in(argument: Argument) -> list[str]:
    """The inputs that an argument consists of: itself, or `name_0` and so on for a tuple of tensors."""
    kind = bare(argument)
    if kind.kind() != "TupleType":
        return [argument.name]
    return [f"{argument.name}_{index}" for index in range(len(kind.elements()))]


def bare(argument: Argument) -> Any:
    """The argument's type, Optional taken off."""
    kind = argument.raw_type
    return kind.getElementType() if kind.kind() == "OptionalType" else kind


def written_attributes(program: Program) -> list[str]:
    """Attributes, by their dotted path, that forward reads or writes: what freezing leaves in the module."""
    found: dict[str, None] = {}

    def walk(block: Any) -> None:
        for raw in block.nodes():
            if raw.kind() in ("prim::GetAttr", "prim::SetAttr") and (path := path_of(raw)) is not None:
                found[path] = None
            for inner in raw.blocks():
                walk(inner)

    walk(program.graph)
    return [path for path in found if not _is_module(program, path)]


def path_of(raw: Any) -> str | None:
    """The dotted path of the attribute that a node reads or writes, None where it is not the module's own."""
    source, path = next(iter(raw.inputs())), [raw.s("name")]
    while source.node().kind() == "prim::GetAttr":
        path.insert(0, source.node().s("name"))
        source = next(iter(source.node().inputs()))
    return ".".join(path) if source.node().kind() == "prim::Param" else None


def attribute(program: Program, path: str) -> Any:
    """What the saved module holds under a dotted path."""
    found = program.module._c
    for part in path.split("."):
        found = found.getattr(part)
    return found


def _is_module(program: Program, path: str) -> bool:
    return type(attribute(program, path)).__name__ in ("ScriptModule", "ScriptObject")


def declare_inputs(program: Program, facts: Facts, request: CompileRequest) -> Inputs:
    """The declared inputs with their shapes, in the order of forward's arguments, attributes behind them."""
    arguments = arguments_of(program)
    known = [name for argument in arguments for name in names_in(argument)]
    states = written_attributes(program)
    check_names("inputs", (spec.name for spec in request.inputs), [*known, *states, *_listed(arguments, request)])
    check_names("consts", (name for name, _ in request.consts), [*known, *states])
    consts, declared = dict(request.consts), {spec.name for spec in request.inputs}
    wanted = [name for argument in arguments for name in _wanted(argument, consts, declared)] + [
        name for name in states if name in declared
    ]
    dtypes = {spec.name: spec.dtype for spec in request.inputs}
    specs = [spec_of(FileInput(name, dtypes.get(name, "float32"), None), request) for name in wanted]
    return Inputs(specs, declare(facts, specs, request), consts)


def _listed(arguments: list[Argument], request: CompileRequest) -> list[str]:
    """Declared inputs that are items of a list argument: `name_0` and so on."""
    lists = {argument.name for argument in arguments if bare(argument).kind() == "ListType"}
    return [spec.name for spec in request.inputs if spec.name.rpartition("_")[0] in lists and spec.name.rpartition("_")[2].isdigit()]


def _wanted(argument: Argument, consts: Mapping[str, Any], declared: set[str]) -> list[str]:
    """Names of the inputs that an argument is given by; raises ImportFailed for one that nothing gives."""
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


def create_parameters(inputs: Inputs) -> list[Any]:
    """A Relax variable for every declared input."""
    for spec, shape in zip(inputs.specs, inputs.shapes, strict=True):
        variable = relax.Var(identifier(spec.name), relax.TensorType([ex.prim(extent) for extent in shape], spec.dtype))
        inputs.params.append(variable)
        inputs.tensors[spec.name] = Tensor(variable, shape, spec.dtype)
    return inputs.params


def argument_value(b: Builder, argument: Argument, inputs: Inputs) -> Any:
    """What an argument stands for in the graph."""
    if argument.name in inputs.consts:
        return _fixed(argument, inputs.consts[argument.name])
    kind = bare(argument).kind()
    if kind == "ListType":
        items = [inputs.tensors[name] for name in inputs.tensors if name.rpartition("_")[0] == argument.name]
        return items if items or not (argument.has_default or argument.raw_type.kind() == "OptionalType") else argument.default
    names = names_in(argument)
    if not all(name in inputs.tensors for name in names):
        return argument.default
    tensors = tuple(inputs.tensors[name] for name in names)
    if kind == "TupleType":
        return tensors
    if kind in ("IntType", "FloatType", "BoolType"):
        return number_of(b, tensors[0], {"IntType": Number.INT, "FloatType": Number.FLOAT, "BoolType": Number.BOOL}[kind])
    return tensors[0]


def _fixed(argument: Argument, value: Any) -> Any:
    kind = str(bare(argument).annotation_str)
    wanted = _NUMBERS.get(kind)
    if wanted is None:
        raise ImportFailed(
            f"const {argument.name!r}: the argument is {kind}, only numbers, flags and strings are fixed",
            reason="const",
            field=f"consts.{argument.name}",
        )
    made = wanted(value)
    if made != value or (wanted is not float and type(made) is not type(value) and wanted is not bool):
        raise ImportFailed(
            f"const {argument.name!r} cannot be {value!r}: the argument is {kind}", reason="const", field=f"consts.{argument.name}"
        )
    return made
