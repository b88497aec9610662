"""Which layers of a library multiply rounded numbers, and which stay as the model has them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from relaxd.contract.documents import known_keys, manifest_error, mapping, sequence, text
from relaxd.contract.options import Precision

_FORMS = tuple(form for form in Precision if form is not Precision.FLOAT32)

Unit: TypeAlias = tuple[str, ...]
"""The names of layers that round together or not at all: the two matmuls of an attention do."""


@dataclass(frozen=True)
class QuantizedLayers:
    """Matmuls and convolutions by the names of their nodes: `layers` have operands of the form;
    bfloat16: those that multiply this where `layers` multiply int8; kept: those that stay float32,
    with the reasons.
    """

    form: Precision
    layers: tuple[str, ...]
    kept: Mapping[str, str]
    bfloat16: tuple[str, ...] = ()

    def keeping(self, float32_layers: Mapping[str, str]) -> "QuantizedLayers":
        """With these layers in float32 too, for the reasons given."""
        layers = tuple(name for name in self.layers if name not in float32_layers)
        return replace(self, layers=layers, kept={**self.kept, **float32_layers})

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        document = {"form": self.form.value, "layers": list(self.layers), "kept": dict(self.kept)}
        return document | ({"bfloat16": list(self.bfloat16)} if self.bfloat16 else {})

    @classmethod
    def from_json(cls, document: Any) -> "QuantizedLayers":
        """Inverse of `to_json`; raises BundleError for a malformed document."""
        fields = mapping(document, "narrow")
        known_keys(fields, frozenset({"form", "layers", "kept", "bfloat16"}), "narrow")
        if fields.get("form") not in _FORMS:
            raise manifest_error("layers have a precision that this relaxd does not know")
        return cls(
            Precision(fields["form"]),
            tuple(
                text(name, "a narrow layer") for name in sequence(fields.get("layers"), "layers")
            ),
            {
                text(name, "a layer's name"): text(why, "why a layer is kept")
                for name, why in mapping(fields.get("kept"), "narrow.kept").items()
            },
            tuple(
                text(name, "a narrow layer")
                for name in sequence(fields.get("bfloat16", []), "bfloat16")
            ),
        )
