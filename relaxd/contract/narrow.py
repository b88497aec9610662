"""Which layers of a library multiply rounded numbers, and which stay as the model has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxd.contract.documents import known_keys, malformed, mapping, sequence, text
from relaxd.contract.options import Precision

_FORMS = tuple(form for form in Precision if form is not Precision.FLOAT32)


@dataclass(frozen=True)
class NarrowLayers:
    """Matmuls and convolutions by the names of their nodes: `layers` have operands of the form;
    kept: those that stay float32, with the reasons.
    """

    form: Precision
    layers: tuple[str, ...]
    kept: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        return {"form": self.form.value, "layers": list(self.layers), "kept": dict(self.kept)}

    @classmethod
    def from_json(cls, document: Any) -> "NarrowLayers":
        """Inverse of `to_json`; raises BundleError for a malformed document."""
        found = mapping(document, "narrow")
        known_keys(found, frozenset({"form", "layers", "kept"}), "narrow")
        if found.get("form") not in _FORMS:
            raise malformed("layers have a precision that this relaxd does not know")
        return cls(
            Precision(found["form"]),
            tuple(text(name, "a narrow layer") for name in sequence(found.get("layers"), "layers")),
            {
                text(name, "a layer's name"): text(why, "why a layer is kept")
                for name, why in mapping(found.get("kept"), "narrow.kept").items()
            },
        )
