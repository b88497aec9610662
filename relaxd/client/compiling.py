"""`relaxd.compile`: a model to bundles on disk, by the compiler installed here or a service."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from relaxd.client import extras
from relaxd.client.client import SERVER, Client
from relaxd.client.folder import replacing
from relaxd.client.job import JobHandle
from relaxd.client.operators import Operators, read_operators
from relaxd.client.upload import Model, Samples, Serializable, read_files
from relaxd.contract.bundle import numerics
from relaxd.contract.bundle.numerics import Numerics
from relaxd.contract.model_folder import require_model
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest, Scalar
from relaxd.contract.steps import describe_step
from relaxd.contract.urgency import Deadline, Urgency

if TYPE_CHECKING:
    from relaxd.loader.model import Model as Loaded

Progress = Callable[[str, str], None]
"""Gets the target and what its build does now."""


@dataclass(frozen=True)
class CompiledBundle:
    """The bundle of one target, in the folder `path`; `size` in bytes; `numerics`: how it was
    verified; job: that of the service which built it, None for one built here.
    """

    target: str
    path: Path
    size: int
    digest: str
    numerics: Numerics
    job: str | None = None

    def load(self, **options: Any) -> "Loaded":
        """`relaxd.load` of the bundle."""
        from relaxd.loader.opening import load

        return load(self.path, **options)


def compile(
    model: Model,
    output: str | Path = "out",
    *,
    dims: Mapping[str, Any] | None = None,
    targets: Iterable[str] = ("native",),
    inputs: Mapping[str, str] | None = None,
    consts: Mapping[str, Scalar] | None = None,
    shapes: Mapping[str, Any] | None = None,
    samples: Samples | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    server: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    wait_for_worker: bool = False,
    priority: int = 0,
    deadline: Deadline | None = None,
    on_progress: Progress = lambda target, message: None,
    operators: Operators = (),
) -> dict[str, CompiledBundle]:
    """Compile a model into `output`, `output/TARGET` with several targets; the bundles by target.

    server: a service's URL, by default RELAXD_SERVER; without either, the compiler that is
    installed here compiles, at once. The declarations, priority and deadline are as in
    `Client.compile`. Raises the first target's
    error: JobFailed on a service, CompileError here; WaitTimeout after `timeout` seconds on a
    service, where the job goes on; ExtraMissing where there is no compiler.
    """
    request = CompileRequest.of(
        dims=dims,
        inputs=inputs,
        consts=consts,
        shapes=shapes,
        targets=targets,
        options=options,
        operators=read_operators(operators),
    )
    return compile_request(
        model,
        output,
        request,
        samples=samples,
        server=server,
        token=token,
        timeout=timeout,
        wait_for_worker=wait_for_worker,
        urgency=Urgency.of(priority, deadline),
        on_progress=on_progress,
    )


def compile_request(
    model: Model,
    output: str | Path,
    request: CompileRequest,
    *,
    samples: Samples | None = None,
    server: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    wait_for_worker: bool = False,
    project: str = "",
    urgency: Urgency = Urgency(),
    on_progress: Progress = lambda target, message: None,
) -> dict[str, CompiledBundle]:
    """Do what `compile` does, with declarations that were read before."""
    server = server or os.environ.get(SERVER)
    if server is None:
        return _here(model, request, samples, Path(output), on_progress)
    with Client(server, token=token) as client:
        job = client.submit(
            model,
            request,
            samples=samples,
            wait_for_worker=wait_for_worker,
            project=project,
            urgency=urgency,
        )
        for event in job.events(timeout=timeout):
            if event.target is not None and (news := _read_news(event.data)):
                on_progress(event.target, news)
        return _pulled(job.refresh().wait(timeout), Path(output))


def _read_news(data: Mapping[str, Any]) -> str:
    """Say an event in words, empty where it says nothing."""
    if data.get("stage"):
        return describe_step(data)
    return str(data.get("state") or data.get("reason") or "")


def _folder(output: Path, target: str, count: int) -> Path:
    return output if count == 1 else output / target


def _pulled(job: JobHandle, output: Path) -> dict[str, CompiledBundle]:
    bundles = {}
    for build in job.results:
        digest = job.bundle(build.target)
        path = job.pull(build.target, _folder(output, build.target, len(job.results)))
        size = build.artifact.size if build.artifact else 0
        bundles[build.target] = CompiledBundle(
            build.target, path, size, digest, build.numerics, job.id
        )
    return bundles


def _here(
    model: Model,
    request: CompileRequest,
    samples: Samples | None,
    output: Path,
    on_progress: Progress,
) -> dict[str, CompiledBundle]:
    api = extras.load("compiler.api", extra="compiler")
    bundles = {}
    for target in request.targets:
        folder = _folder(output, target, len(request.targets))
        with replacing(folder) as fresh, TemporaryDirectory(prefix="relaxd-") as scratch:
            manifest = api.compile_request(
                _model_at(model, Path(scratch, "model")),
                request,
                output=fresh,
                target=target,
                samples=_samples(samples, Path(scratch, "samples.npz")),
                on_event=lambda event, target=target: _tell(event.to_json(), target, on_progress),
            )
            report = Numerics.from_json(json.loads((fresh / numerics.FILENAME).read_bytes()))
            digest = digest_here(fresh, target, manifest)
        size = sum(entry.size for entry in manifest.files.values())
        bundles[target] = CompiledBundle(target, folder, size, digest, report)
    return bundles


def _model_at(model: Model, path: Path) -> Path:
    """The model's file or folder: the source, or `path` with its bytes or files."""
    if isinstance(model, str | Path):
        require_model(Path(model))
        return Path(model)
    if isinstance(model, bytes | Serializable):
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        return path
    for name, piece in read_files(model).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        with (path / name).open("wb") as file:
            file.writelines(piece.chunks())
    return path


def _samples(samples: Samples | None, path: Path) -> Path | None:
    if isinstance(samples, str | Path):
        require_model(Path(samples))
        return Path(samples)
    if samples is None or isinstance(samples, bytes):
        return None if samples is None else _model_at(samples, path)
    import numpy as np

    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in samples.items()}
    np.savez(path, **arrays)
    return path


def digest_here(bundle: Path, target: str, manifest: Any) -> str:
    """The digest that a service would publish the bundle under."""
    digesting = extras.load("artifacts.digesting", extra="compiler")
    return str(digesting.bundle_digest(bundle, manifest.action_key.get("digest", ""), target))


def _tell(event: dict[str, Any], target: str, on_progress: Progress) -> None:
    match event:
        case {"kind": "stage" | "progress"}:
            on_progress(target, describe_step(event))
