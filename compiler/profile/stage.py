"""The profile of a new bundle: which points are timed, beside what, and what is counted of its
kernels.
"""

from dataclasses import dataclass
from pathlib import Path

from compiler.host.machine import cannot_run, in_software
from compiler.isolation.step import Record
from compiler.profile import measure
from compiler.profile.grid import grid_points
from compiler.profile.report import complete
from compiler.targets import Target
from compiler.verify.inputs.inputs import Signature, Trials, in_buffers, prepare_at
from compiler.verify.inputs.points import Point
from compiler.verify.sides import FirstCalls, Reference, read_first_calls
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.grid import ProfileOptions
from relaxd.contract.request import CompileRequest

_SECONDS, _GRID_SECONDS = 4.0, 60.0
"""People wait for the first; who asks for a grid has said that they do."""
_MEMORY_BYTES = 8 << 30
_GRID_INPUT_BYTES = 16 << 20
"""Of each point of a grid; all of them lie in the scratch folder at once."""


@dataclass(frozen=True)
class Subject:
    """A sealed bundle, what was asked for, and the notes of its kernels."""

    bundle: Path
    manifest: Manifest
    target: Target
    request: CompileRequest
    signature: Signature
    kernels: list[Record]


def check_grid(request: CompileRequest, signature: Signature) -> None:
    """Raises DeclarationError for a point of the grid that the dims exclude."""
    _grid(request, signature.original)


def run_profile(
    subject: Subject,
    trials: Trials,
    samples: Path | None,
    reference: Record | None,
    scratch: Path,
    on_points: measure.OnPoints,
) -> Record:
    """The document of `relaxd.contract.bundle.profile`, which says why where nothing was measured;
    raises ProfileError when the library crashes.

    trials: the points of verification. reference, on_points: as `measure.profile` takes them.
    """
    target, request = subject.target, subject.request
    if not request.options.profile:
        return measure.not_run("options.profile is off")
    if reason := cannot_run(target):
        return measure.not_run(reason)
    if in_software(target):
        return measure.not_run(
            "the only device here is the processor under another name: its times say nothing of a "
            "GPU"
        )
    folder, original = scratch / "grid", subject.signature.original
    folder.mkdir()
    points, seed = _grid(request, original), request.options.seed
    grid = prepare_at(original, points, samples, seed, folder, _GRID_INPUT_BYTES)
    measured = measure.profile(
        subject.bundle,
        in_buffers(trials, subject.manifest, scratch).add_work(subject.kernels),
        scratch,
        measure.Limits(_SECONDS, _MEMORY_BYTES, _GRID_SECONDS),
        earlier=FirstCalls() if subject.manifest.state else read_first_calls(scratch),
        reference=reference,
        grid=in_buffers(grid, subject.manifest, folder).add_work(subject.kernels),
        on_points=on_points,
    )
    return complete(measured, subject.kernels, target, with_cost=bool(points))


def _grid(request: CompileRequest, signature: Signature) -> tuple[Point, ...]:
    options = request.options.profile
    if not isinstance(options, ProfileOptions):
        return ()
    return grid_points(options, signature.inputs, signature.dims)


def beside_of(original: Reference) -> Record | None:
    """The model that ONNX Runtime runs beside the library, where it can run it."""
    runs = any(engine.startswith("onnxruntime") for engine in original.engines)
    if not runs or original.draws:
        return None
    return {"model": str(original.model), "consts": dict(original.consts)}
