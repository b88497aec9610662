"""The part of a model that computes on strings: a loader in Python runs it around the library, of
which other hosts give and read the numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.tensors import TEXT, TensorSpec
from relaxd.contract.documents import known_keys, manifest_error, mapping, sequence, text, words
from relaxd.errors import DeclarationError

VERSION = 1
FILENAME = "strings.json"
"""The bundle's file of the steps; vocabularies may be large, and every loader reads the
manifest."""


@dataclass(frozen=True)
class Step:
    """One operator on tensors of strings or numbers, by the names of its values; `attributes` is
    plain JSON, whose keys `op` determines (`relaxd.loader.strings.operators`).
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The form in the file of steps."""
        return {
            "op": self.op,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            **({"attributes": dict(self.attributes)} if self.attributes else {}),
        }

    @classmethod
    def from_json(cls, document: Any) -> "Step":
        """Inverse of `to_json`; raises BundleError for a malformed document."""
        fields = mapping(document, "a step")
        known_keys(fields, frozenset({"op", "inputs", "outputs", "attributes"}), "a step")
        inputs, outputs = (
            tuple(text(name, "a value's name") for name in sequence(fields.get(side), side))
            for side in ("inputs", "outputs")
        )
        attributes = mapping(fields.get("attributes", {}), "a step's attributes")
        return cls(text(fields.get("op"), "a step's op", 64), inputs, outputs, attributes)


@dataclass(frozen=True)
class Steps:
    """before: from the caller's strings to inputs of the library; after: from outputs of the
    library to the caller's strings. Each in an order in which they can run.
    """

    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document in the file of steps."""
        return {
            "version": VERSION,
            "before": [step.to_json() for step in self.before],
            "after": [step.to_json() for step in self.after],
        }

    @classmethod
    def from_json(cls, document: Any) -> "Steps":
        """Inverse of `to_json`; raises BundleError for another version or a malformed document."""
        fields = mapping(document, FILENAME)
        known_keys(fields, frozenset({"version", "before", "after"}), FILENAME)
        _check_version(fields.get("version"))
        before, after = (
            tuple(Step.from_json(step) for step in sequence(fields.get(part), part))
            for part in ("before", "after")
        )
        return cls(before, after)


@dataclass(frozen=True)
class Strings:
    """The interface of the part on strings.

    inputs, outputs: the caller's, in the model's order, those of strings as `string[n,1]`, others
    as the library has them.
    encoded: the inputs of the library that the steps make; decoded: its outputs that they read,
    which a caller of strings does not see.
    packages: what the steps import beside numpy, as pip calls it.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    encoded: tuple[str, ...] = ()
    decoded: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        return {
            "version": VERSION,
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "encoded": list(self.encoded),
            "decoded": list(self.decoded),
            "packages": list(self.packages),
        }

    @classmethod
    def from_json(cls, document: Any) -> "Strings":
        """Inverse of `to_json`; raises BundleError for another version or a malformed document."""
        fields = mapping(document, "strings")
        known_keys(
            fields,
            frozenset({"version", "inputs", "outputs", "encoded", "decoded", "packages"}),
            "strings",
        )
        _check_version(fields.get("version"))
        encoded, decoded = (
            tuple(text(name, f"strings.{side}") for name in sequence(fields.get(side), side))
            for side in ("encoded", "decoded")
        )
        packages = words(fields.get("packages"), "strings.packages")
        return cls(_specs(fields, "inputs"), _specs(fields, "outputs"), encoded, decoded, packages)


def string_spec(name: str, axes: tuple[Axis, ...]) -> TensorSpec:
    """The spec of an input or output of strings."""
    return TensorSpec(name, TEXT, axes)


def _specs(fields: Mapping[str, Any], side: str) -> tuple[TensorSpec, ...]:
    specs = []
    for document in sequence(fields.get(side), f"strings.{side}"):
        entry = mapping(document, f"one of strings.{side}")
        known_keys(entry, frozenset({"name", "dtype", "shape", "default"}), "a tensor")
        for name in ("name", "dtype"):
            text(entry.get(name), f"a tensor's {name}")
        axes = sequence(entry.get("shape"), "a shape")
        if not all(type(axis) in (int, str) for axis in axes) or len(axes) > 32:
            raise manifest_error(f"a shape in strings.{side} is not a list of axes")
        try:
            specs.append(TensorSpec.from_json(entry))
        except DeclarationError as error:
            raise manifest_error(str(error)) from error
    return tuple(specs)


def _check_version(version: Any) -> None:
    if version != VERSION:
        raise manifest_error(
            f"its steps on strings have version {str(version)[:40]}, this relaxd reads {VERSION}"
        )
