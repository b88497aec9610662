"""Arguments of forward and attributes that it keeps between calls, by name; without TVM, for the
importer and for torch as a reference.
"""

from dataclasses import dataclass
from typing import Any

from compiler.ir.aten.attributes import path_of
from compiler.ir.torchscript.loading import Program


@dataclass(frozen=True)
class Argument:
    """One argument of forward: torch's type in text, and its default where it has one."""

    name: str
    type: str
    raw_type: Any = None
    has_default: bool = False
    default: Any = None


def arguments_of(program: Program) -> list[Argument]:
    """The arguments of forward without self."""
    arguments = []
    for argument in program.schema.arguments[1:]:
        default = argument.has_default_value()
        arguments.append(
            Argument(
                argument.name,
                str(argument.type),
                argument.type,
                default,
                argument.default_value if default else None,
            )
        )
    return arguments


def names_in(argument: Argument) -> list[str]:
    """The inputs that an argument consists of: itself, or `name_0` and so on for a tuple of
    tensors.
    """
    kind = bare(argument)
    if kind.kind() != "TupleType":
        return [argument.name]
    return [f"{argument.name}_{index}" for index in range(len(kind.elements()))]


def bare(argument: Argument) -> Any:
    """The argument's type, Optional taken off."""
    kind = argument.raw_type
    return kind.getElementType() if kind.kind() == "OptionalType" else kind


def written_attributes(program: Program) -> list[str]:
    """Attributes, by their dotted path, that forward reads or writes: what freezing leaves in the
    module.
    """
    paths: dict[str, None] = {}

    def walk(block: Any) -> None:
        for raw in block.nodes():
            if (
                raw.kind() in ("prim::GetAttr", "prim::SetAttr")
                and (path := path_of(raw)) is not None
            ):
                paths[path] = None
            for inner in raw.blocks():
                walk(inner)

    walk(program.graph)
    return [path for path in paths if not _is_module(program, path)]


def attribute(program: Program, path: str) -> Any:
    """The saved module's attribute of a dotted path."""
    value = program.module._c
    for part in path.split("."):
        value = value.getattr(part)
    return value


def _is_module(program: Program, path: str) -> bool:
    return type(attribute(program, path)).__name__ in ("ScriptModule", "ScriptObject")
