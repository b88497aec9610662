"""Custom operators: nodes that C code of the user's computes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from relaxd.contract.canonical import canonical_bytes, digest_of
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import DeclarationError, suggest

MOST_OPERATORS = 64
MOST_CHARACTERS = 256 << 10
"""Of a source, and of a definition."""

ATTRIBUTE_TYPES = {"int": "int64_t", "float": "double"}
"""By the type of an attribute in ONNX, the parameter's."""

C_TYPES = {
    "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}
"""By dtype, what a pointer points to; 16-bit floats are passed as their bits."""

_NAME = re.compile(r"(?P<domain>[A-Za-z0-9_.\-]{1,200})::(?P<operator>[A-Za-z0-9_]{1,200})")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
"""What a file of text cannot hold."""
_KEYS = ("name", "function", "inputs", "outputs", "attributes", "source", "definition")


@dataclass(frozen=True)
class CustomOperator:
    """A node's operator and the C function that computes it.

    name: domain and operator, as in `com.example::Swish`; inputs: axes are dims and sizes; outputs:
    axes are expressions of these dims; attributes: names and types; source: C, of which `function`
    is called; definition: the text of an ONNX function that computes the same, empty where the
    model has it.
    """

    name: str
    function: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attributes: tuple[tuple[str, str], ...]
    source: str
    definition: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Domain and operator."""
        domain, _, operator = self.name.partition("::")
        return domain, operator

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """The dims of the inputs, in the order in which they first stand there."""
        axes = (axis for spec in self.inputs for axis in spec.shape)
        return tuple(dict.fromkeys(axis.symbol for axis in axes if axis.symbol is not None))

    @cached_property
    def symbol(self) -> str:
        """The function's name in a library: equal code has an equal name."""
        digest = digest_of(canonical_bytes(self.to_json())).removeprefix("sha256:")
        return f"relaxd_operator_{digest[:16]}"

    @property
    def prototype(self) -> str:
        """How the function is called: inputs, outputs, dims, attributes; it returns 0 if it could
        compute.
        """
        parameters = [
            *(f"const {C_TYPES[spec.dtype]} *" for spec in self.inputs),
            *(f"{C_TYPES[spec.dtype]} *" for spec in self.outputs),
            *("int64_t" for _ in self.dims),
            *(ATTRIBUTE_TYPES[kind] for _, kind in self.attributes),
        ]
        return f"int {self.function}({', '.join(parameters)});"

    def to_json(self) -> dict[str, Any]:
        """The wire form."""
        return {
            "name": self.name,
            "function": self.function,
            "inputs": [f"{spec.name}={spec.text}" for spec in self.inputs],
            "outputs": [f"{spec.name}={spec.text}" for spec in self.outputs],
            "attributes": [f"{name}={kind}" for name, kind in self.attributes],
            "source": self.source,
            "definition": self.definition,
        }

    @classmethod
    def from_json(cls, document: Any) -> "CustomOperator":
        """Read the wire form; raises DeclarationError."""
        _check_keys(document)
        name = document["name"]
        operator = cls(
            name,
            _text(document, "function"),
            tuple(_spec(name, text) for text in _texts(document, "inputs")),
            tuple(_spec(name, text) for text in _texts(document, "outputs")),
            tuple(_attribute(name, text) for text in _texts(document, "attributes")),
            _text(document, "source"),
            _text(document, "definition"),
        )
        _check(operator)
        return operator


def operators_of(documents: Any) -> tuple[CustomOperator, ...]:
    """The operators of a request, by name; raises DeclarationError."""
    if isinstance(documents, (str, Mapping)) or not isinstance(documents, Iterable):
        raise _wrong("operators must be a list", "")
    operators = sorted(
        (o if isinstance(o, CustomOperator) else CustomOperator.from_json(o) for o in documents),
        key=lambda operator: operator.name,
    )
    if len(operators) > MOST_OPERATORS:
        raise _wrong(f"{len(operators)} operators, of at most {MOST_OPERATORS}", "")
    names = [operator.name for operator in operators]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _wrong(f"the operator {twice!r} is declared twice", twice)
    return tuple(operators)


def _check_keys(document: Any) -> None:
    if not isinstance(document, Mapping):
        raise _wrong(f"an operator must be an object, not {document!r}", "")
    for key in document:
        if key not in _KEYS:
            known = f"an operator has {', '.join(_KEYS)}"
            raise _wrong(f"unknown key {key!r}", str(key), suggest(str(key), _KEYS, known))
    name = document.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(
            f"an operator is named {name!r}",
            "name",
            "give the domain and the operator of the node, as in com.example::Swish",
        )


def _check(operator: CustomOperator) -> None:
    name = operator.name
    if not _IDENTIFIER.fullmatch(operator.function):
        raise _wrong(f"{name}: {operator.function!r} is no name of a C function", name)
    if not operator.source.strip():
        raise _wrong(f"{name}: the source is empty", name, "give the text of a C file")
    if not operator.inputs or not operator.outputs:
        raise _wrong(f"{name}: an operator has at least one input and one output", name)
    for spec in operator.inputs:
        for axis in spec.shape:
            if axis.symbol is None and axis.size is None:
                hint = "name the axis; expressions belong to outputs"
                raise _wrong(f"{name}: the input axis {axis.text!r} is no dim", name, hint)
    for spec in operator.outputs:
        for axis in spec.shape:
            if unknown := sorted(axis.dims - set(operator.dims)):
                raise _wrong(
                    f"{name}: the output axis {axis.text!r} has {', '.join(unknown)}, "
                    "which is no axis of an input",
                    name,
                )


def _spec(operator: str, text: str) -> TensorSpec:
    name, equals, form = text.partition("=")
    if not equals:
        raise _wrong(f"{operator}: cannot read {text!r}", operator, "as in x=float32[n,64]")
    spec = TensorSpec.of(name.strip(), form)
    if spec.dtype not in C_TYPES:
        raise _wrong(
            f"{operator}: {spec.dtype} has no type in C",
            operator,
            f"one of {', '.join(C_TYPES)}",
        )
    return spec


def _attribute(operator: str, text: str) -> tuple[str, str]:
    name, _, kind = (part.strip() for part in text.partition("="))
    if not _IDENTIFIER.fullmatch(name) or kind not in ATTRIBUTE_TYPES:
        raise _wrong(f"{operator}: cannot read {text!r}", operator, "as in axis=int, beta=float")
    return name, kind


def _texts(document: Mapping[str, Any], key: str) -> list[str]:
    values = document.get(key) or []
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, str) for v in values):
        raise _wrong(f"{document['name']}: {key} must be a list of texts", key)
    return list(values)


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key) or ""
    if not isinstance(value, str) or len(value) > MOST_CHARACTERS or _UNWRITABLE.search(value):
        most = f"at most {MOST_CHARACTERS} characters"
        raise _wrong(f"{document['name']}: {key} must be a text of {most}", key)
    return value


def _wrong(message: str, key: str, hint: str | None = None) -> DeclarationError:
    return DeclarationError(message, field=f"operators.{key}" if key else "operators", hint=hint)
