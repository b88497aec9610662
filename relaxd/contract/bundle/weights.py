"""Which weights a library stores in fewer bits than the model does, and which stay as they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxd.contract.documents import integer, known_keys, manifest_error, mapping, sequence, text
from relaxd.contract.options import Calibration, WeightForm

_FORMS = tuple(form for form in WeightForm if form is not WeightForm.FLOAT32)
_MAX_RANK = 32


@dataclass(frozen=True)
class StoredWeight:
    """One weight of the model: its form, its shape in the model, and the bytes that it takes.

    nearest: where the build calibrates weights, why each number of this one went to the nearest all
    the same; None where it was calibrated.
    """

    form: WeightForm
    shape: tuple[int, ...]
    bytes: int
    nearest: str | None = None

    @property
    def before(self) -> int:
        """Bytes of it as float32."""
        size = 4
        for extent in self.shape:
            size *= extent
        return size

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        return {
            "form": self.form.value,
            "shape": list(self.shape),
            "bytes": self.bytes,
            **({"nearest": self.nearest} if self.nearest is not None else {}),
        }


@dataclass(frozen=True)
class StoredWeights:
    """The weights of a library by their names in the model.

    block: how many numbers share a scale, 1 for a form without scales; kept: large weights that
    stay as the model has them, with the reasons; calibration: what those were rounded by that say
    no other.
    """

    form: WeightForm
    block: int
    layers: Mapping[str, StoredWeight]
    kept: Mapping[str, str]
    calibration: Calibration = Calibration.NONE

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        calibrated = self.calibration is not Calibration.NONE
        return {
            "form": self.form.value,
            "block": self.block,
            **({"calibration": self.calibration.value} if calibrated else {}),
            "layers": {name: one.to_json() for name, one in self.layers.items()},
            "kept": dict(self.kept),
        }

    @classmethod
    def from_json(cls, document: Any) -> "StoredWeights":
        """Inverse of `to_json`; raises BundleError for a malformed document."""
        fields = mapping(document, "stored")
        known_keys(fields, frozenset({"form", "block", "calibration", "layers", "kept"}), "stored")
        return cls(
            _form(fields.get("form")),
            integer(fields.get("block"), "stored.block"),
            {
                text(name, "a weight's name"): _layer(one)
                for name, one in mapping(fields.get("layers"), "stored.layers").items()
            },
            {
                text(name, "a weight's name"): text(why, "why a weight is kept")
                for name, why in mapping(fields.get("kept"), "stored.kept").items()
            },
            _calibration(fields.get("calibration", Calibration.NONE.value)),
        )


def _layer(document: Any) -> StoredWeight:
    fields = mapping(document, "a stored weight")
    known = frozenset({"form", "shape", "bytes", "nearest"})
    known_keys(fields, known, "a stored weight")
    shape = sequence(fields.get("shape"), "the shape of a stored weight")
    if len(shape) > _MAX_RANK:
        raise manifest_error("a stored weight has too many axes")
    extents = tuple(integer(size, "an extent of a stored weight") for size in shape)
    nearest = fields.get("nearest")
    return StoredWeight(
        _form(fields.get("form")),
        extents,
        integer(fields.get("bytes"), "bytes"),
        None if nearest is None else text(nearest, "why a weight is rounded to nearest"),
    )


def _calibration(value: Any) -> Calibration:
    if value not in list(Calibration):
        raise manifest_error("stored weights have a calibration that this relaxd does not know")
    return Calibration(value)


def _form(value: Any) -> WeightForm:
    if value not in _FORMS:
        raise manifest_error("a stored weight has a form that this relaxd does not know")
    return WeightForm(value)
