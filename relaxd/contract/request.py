"""The compile request: a caller's declarations about a model, in canonical form."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from relaxd.contract.canonical import is_digest
from relaxd.contract.dims.axes import Axis, axes_of
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec, split_axes
from relaxd.contract.operators import CustomOperator, operators_of
from relaxd.contract.options import Calibration, CompileOptions
from relaxd.errors import DeclarationError, suggest

FIELDS = frozenset(
    {"model", "inputs", "dims", "consts", "shapes", "samples", "targets", "options", "operators"}
)

Scalar = bool | int | float | str


@dataclass(frozen=True)
class CompileRequest:
    """Declarations of one compile; every collection is sorted by name, `targets` keeps its order.

    inputs: inputs declared or redeclared whole.
    dims: declared dims; a dim of the model left out gets the defaults.
    consts: inputs fixed to a scalar (`sr=16000`).
    shapes: names for data-dependent extents: value name to axes.
    samples: digest of an .npz of inputs for verify, profile and calibration.
    targets: target names or TVM target JSON strings.
    operators: nodes that C code of the caller's computes.
    """

    inputs: tuple[TensorSpec, ...] = ()
    dims: tuple[Dim, ...] = ()
    consts: tuple[tuple[str, Scalar], ...] = ()
    shapes: tuple[tuple[str, tuple[Axis, ...]], ...] = ()
    samples: str | None = None
    targets: tuple[str, ...] = ("native",)
    options: CompileOptions = field(default_factory=CompileOptions)
    operators: tuple[CustomOperator, ...] = ()

    @cached_property
    def dim_table(self) -> dict[str, Dim]:
        """Declared dims by name."""
        return {dim.name: dim for dim in self.dims}

    def require_samples(self) -> None:
        """Raises DeclarationError where something is to be calibrated, and there is nothing to
        calibrate it by.
        """
        if self.options.calibration is not Calibration.NONE and self.samples is None:
            raise DeclarationError(
                f"calibration={self.options.calibration} needs samples, and there are none",
                field="samples",
                hint="give an .npz of real inputs (--samples), or leave calibration out",
            )

    def to_json(self) -> dict[str, Any]:
        """The wire form without `model`; equal requests give equal documents."""
        return {
            "inputs": {spec.name: spec.text for spec in self.inputs},
            "dims": {dim.name: dim.to_json() for dim in self.dims},
            "consts": dict(self.consts),
            "shapes": {name: [axis.text for axis in axes] for name, axes in self.shapes},
            "samples": self.samples,
            "targets": list(self.targets),
            "options": self.options.to_json(),
            # Left out where there are none: the keys of most builds are older than the field.
            **({"operators": [o.to_json() for o in self.operators]} if self.operators else {}),
        }

    @classmethod
    def from_json(cls, document: Any) -> "CompileRequest":
        """Read the wire form, whose `model` is ignored; raises DeclarationError naming the field at
        fault.
        """
        if not isinstance(document, Mapping):
            raise DeclarationError("the request is not a JSON object", field="request")
        for key in document:
            if key not in FIELDS:
                raise DeclarationError(
                    f"unknown field {key!r}",
                    field=str(key),
                    hint=suggest(str(key), FIELDS, f"known fields: {', '.join(sorted(FIELDS))}"),
                )
        return cls.of(
            dims=_mapping(document, "dims"),
            inputs=_mapping(document, "inputs"),
            consts=_mapping(document, "consts"),
            shapes=_mapping(document, "shapes"),
            samples=document.get("samples"),
            targets=_targets(document.get("targets", ["native"])),
            options=_mapping(document, "options"),
            operators=document.get("operators") or (),
        )

    @classmethod
    def of(
        cls,
        *,
        dims: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str | TensorSpec] | None = None,
        consts: Mapping[str, Scalar] | None = None,
        shapes: Mapping[str, Any] | None = None,
        samples: str | None = None,
        targets: Iterable[str] = ("native",),
        options: CompileOptions | Mapping[str, Any] | None = None,
        operators: Iterable[CustomOperator | Mapping[str, Any]] = (),
    ) -> "CompileRequest":
        """Read plain Python values, as `compile_model` and `Client.compile` take them, or
        declarations that are parsed already; raises DeclarationError.
        """
        if samples is not None and not (isinstance(samples, str) and is_digest(samples)):
            raise DeclarationError(
                f"samples must be a digest, not {samples!r}",
                field="samples",
                hint="upload the .npz and give its sha256:... digest",
            )
        for name, value in (consts or {}).items():
            if not isinstance(value, (bool, int, float, str)) or (
                isinstance(value, float) and not math.isfinite(value)
            ):
                raise DeclarationError(
                    f"const {name!r} must be a finite scalar, not {value!r}",
                    field=f"consts.{name}",
                    hint="as in sr=16000",
                )
        return cls(
            inputs=tuple(
                TensorSpec.of(name, value) for name, value in sorted((inputs or {}).items())
            ),
            dims=tuple(Dim.of(name, value) for name, value in sorted((dims or {}).items())),
            consts=tuple(sorted((consts or {}).items())),
            shapes=tuple(
                (name, _axes(name, axes)) for name, axes in sorted((shapes or {}).items())
            ),
            samples=samples,
            targets=_targets(targets),
            options=options
            if isinstance(options, CompileOptions)
            else CompileOptions.from_json(dict(options or {})),
            operators=operators_of(operators),
        )


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise DeclarationError(f"{key} must be an object, not {value!r}", field=key)
    return value or {}


def _targets(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise DeclarationError(
            "targets must be a list of names", field="targets", hint='as in ["native", "x86-64-v3"]'
        )
    targets = tuple(value)
    if not targets or not all(isinstance(target, str) and target for target in targets):
        raise DeclarationError(
            "targets must be a list of at least one name",
            field="targets",
            hint='as in ["native", "x86-64-v3"]',
        )
    if len(set(targets)) != len(targets):
        raise DeclarationError("targets names one target twice", field="targets")
    return targets


def _axes(name: str, value: Any) -> tuple[Axis, ...]:
    if isinstance(value, str):
        value = split_axes(value.strip().removeprefix("[").removesuffix("]"))
    if not isinstance(value, (list, tuple)):
        raise DeclarationError(
            f"shape of {name!r}: cannot read {value!r}",
            field=f"shapes.{name}",
            hint="as in boxes=[n,4]",
        )
    return axes_of(value, f"shapes.{name}")
