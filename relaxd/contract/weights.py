"""Which weights a library stores in fewer bits than the model does, and which stay as they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxd.contract.documents import known_keys, malformed, mapping, sequence, text, whole
from relaxd.contract.options import WeightForm

_FORMS = tuple(form for form in WeightForm if form is not WeightForm.FLOAT32)
_MAX_RANK = 32


@dataclass(frozen=True)
class StoredWeight:
    """One weight of the model: its form, its shape in the model, and the bytes that it takes."""

    form: WeightForm
    shape: tuple[int, ...]
    bytes: int

    @property
    def before(self) -> int:
        """Bytes of it as float32."""
        size = 4
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True)
class StoredWeights:
    """The weights of a library by their names in the model.

    block: how many numbers share a scale, 1 for a form without scales; kept: large weights that
    stay as the model has them, with the reasons.
    """

    form: WeightForm
    block: int
    layers: Mapping[str, StoredWeight]
    kept: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        return {
            "form": self.form.value,
            "block": self.block,
            "layers": {
                name: {"form": one.form.value, "shape": list(one.shape), "bytes": one.bytes}
                for name, one in self.layers.items()
            },
            "kept": dict(self.kept),
        }

    @classmethod
    def from_json(cls, document: Any) -> "StoredWeights":
        """Inverse of `to_json`; raises BundleError for a malformed document."""
        found = mapping(document, "stored")
        known_keys(found, frozenset({"form", "block", "layers", "kept"}), "stored")
        return cls(
            _form(found.get("form")),
            whole(found.get("block"), "stored.block"),
            {
                text(name, "a weight's name"): _layer(one)
                for name, one in mapping(found.get("layers"), "stored.layers").items()
            },
            {
                text(name, "a weight's name"): text(why, "why a weight is kept")
                for name, why in mapping(found.get("kept"), "stored.kept").items()
            },
        )


def _layer(document: Any) -> StoredWeight:
    found = mapping(document, "a stored weight")
    known_keys(found, frozenset({"form", "shape", "bytes"}), "a stored weight")
    shape = sequence(found.get("shape"), "the shape of a stored weight")
    if len(shape) > _MAX_RANK:
        raise malformed("a stored weight has too many axes")
    extents = tuple(whole(size, "an extent of a stored weight") for size in shape)
    return StoredWeight(_form(found.get("form")), extents, whole(found.get("bytes"), "bytes"))


def _form(value: Any) -> WeightForm:
    if value not in _FORMS:
        raise malformed("a stored weight has a form that this relaxd does not know")
    return WeightForm(value)
