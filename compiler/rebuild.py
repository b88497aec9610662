"""Compiles a signed bundle's model again and compares the results bit for bit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compiler.api import compile_request, digest_of_file
from compiler.key import action_key
from compiler.targets import resolve
from compiler.toolchain.versions import versions
from relaxd.contract.action import ActionKey, differences
from relaxd.contract.bundle import numerics
from relaxd.contract.model_files import digest_of_files, digest_of_piece
from relaxd.contract.model_tar import files_at
from relaxd.contract.options import Calibration, PrecisionOver
from relaxd.contract.request import CompileRequest
from relaxd.loader.bundles.bundle import read_manifest
from relaxd.provenance.errors import TrustError

MEASURED = frozenset({"profile.json", numerics.FILENAME})
"""Reports of times, and of what was compared within them, which no two builds share."""


@dataclass(frozen=True)
class Origin:
    """The model, request and target that a statement says a bundle was built from."""

    model: str
    request: CompileRequest
    target: str
    key: ActionKey

    @property
    def by_samples(self) -> bool:
        """True if samples decided about weights or layers."""
        return self.request.samples is not None and (
            self.request.options.calibration is not Calibration.NONE or self.keeps
        )

    @property
    def keeps(self) -> bool:
        """True if layers stayed in float32 for the error of the others."""
        return self.request.options.precision_over is PrecisionOver.KEEP

    @classmethod
    def of(cls, statement: Mapping[str, Any]) -> "Origin":
        """From a signed statement; raises TrustError for one that is not of a build of ours."""
        try:
            built = statement["predicate"]["buildDefinition"]
            parameters = built["externalParameters"]
            options = parameters["options"] or {}
            request = CompileRequest.from_json({**parameters["request"], "options": options})
            key = ActionKey(built["internalParameters"]["action_key"]["parts"])
            return cls(parameters["model"], request, parameters["target"], key)
        except (KeyError, TypeError) as error:
            raise TrustError(f"the statement lacks {error}", part="statement") from error


def compare(
    origin: Origin, bundle: Path, model: Path, output: Path, samples: Path | None = None
) -> list[str]:
    """Compile the model into `output`; the names of the files that are equal, which are all but
    measurements and the manifest that lists their digests. samples: the file that weights were
    calibrated by or layers chosen, where they were.

    Raises TrustError, which names the part of the action key or the file that differs, and
    CompileError.
    """
    _check_model(origin, model)
    _check_samples(origin, samples)
    _check_key(origin)
    unmeasured = replace(
        origin.request.options,
        # What layers stay in float32 follows from the error that is allowed, which wants verify.
        verify=origin.keeps,
        profile=False,
        weights_error=None,
        cache_error=None,
        precision_error=origin.request.options.precision_error if origin.keeps else None,
    )
    request = replace(origin.request, options=unmeasured, samples=None, targets=(origin.target,))
    # Kernels of earlier builds would prove nothing.
    compile_request(
        model,
        request,
        output=output,
        target=origin.target,
        samples=samples,
        kernels=False,
        # Symbols of a library without a runtime begin with it.
        name=read_manifest(bundle).name,
    )
    have, want = _digests(output), _digests(bundle)
    for name in sorted(have.keys() | want.keys()):
        if have.get(name) != want.get(name):
            raise TrustError(
                f"{name} is not what the model compiles to here",
                part=name,
                hint="the builder and this machine differ, or one of them lies",
            )
    _check_interface(output, bundle)
    return sorted(have)


def _check_model(origin: Origin, model: Path) -> None:
    files = {name: (digest_of_piece(one), one.size) for name, one in files_at(model).items()}
    digest = digest_of_files(files)
    if digest != origin.model:
        raise TrustError(
            f"the model is {digest}, the bundle was built from {origin.model}", part="model"
        )


def _check_samples(origin: Origin, samples: Path | None) -> None:
    if not origin.by_samples:
        return
    if samples is None:
        raise TrustError(
            "samples decided what is rounded, and there are none to do it again",
            part="samples",
            hint=f"give --samples with the file {origin.request.samples}",
        )
    digest = digest_of_file(samples)
    if digest != origin.request.samples:
        raise TrustError(
            f"the samples are {digest}, the bundle was built with {origin.request.samples}",
            part="samples",
        )


def _check_key(origin: Origin) -> None:
    """Raise TrustError where another toolchain or target here would build something else."""
    here = action_key(origin.model, origin.request, resolve(origin.target), versions())
    if apart := [each.part for each in differences(origin.key.parts, here.parts)]:
        raise TrustError(
            f"this machine would build under another action key: {', '.join(apart)} differ",
            part="action_key",
            hint="rebuild with the versions of the statement",
        )


def _digests(folder: Path) -> dict[str, str]:
    files = read_manifest(folder).files
    return {name: entry.sha256 for name, entry in files.items() if name not in MEASURED}


def _check_interface(output: Path, bundle: Path) -> None:
    """Raise TrustError where the manifests differ in what a loader goes by."""
    have, want = (read_manifest(folder).to_json() for folder in (output, bundle))
    for name in ("inputs", "outputs", "dims", "load", "library", "entry", "weights", "alignment"):
        if have[name] != want[name]:
            raise TrustError(
                f"the manifest's {name} are not what the model compiles to here",
                part="manifest.json",
            )
