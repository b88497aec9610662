"""Compiling from Python, with no service: one call, one bundle."""

import dataclasses
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from compiler import targets
from compiler.host.prepare import prepare
from compiler.ir import inspect_exported
from compiler.ir.files.torch_archives import is_exported
from compiler.isolation.child import run_child
from compiler.isolation.messages import CompileJob, Event, FamiliesJob, InspectJob
from compiler.isolation.starting import Limits
from compiler.isolation.usage import OnUsage
from compiler.toolchain import cache
from compiler.toolchain.objects import KERNELS_MB, KernelObjects
from relaxd.contract.bundle.manifest import REPRODUCER_START, Manifest
from relaxd.contract.model_folder import model_name
from relaxd.contract.operators import CustomOperator
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

Model: TypeAlias = "str | Path | bytes | onnx.ModelProto"


def compile_model(
    model: Model,
    *,
    output: str | Path,
    target: str = "native",
    dims: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
    consts: Mapping[str, Scalar] | None = None,
    shapes: Mapping[str, Any] | None = None,
    samples: str | Path | None = None,
    options: CompileOptions | Mapping[str, Any] | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    limits: Limits | None = None,
    dump: str | Path | None = None,
    operators: Iterable[CustomOperator | Mapping[str, Any]] = (),
) -> Manifest:
    """Compile for one target into the directory `output`, in a process of its own; returns the
    bundle's manifest.

    model: a path (external data lies in its folder), the file's bytes, or an onnx.ModelProto.
    dims: name to an int, (min, max), or the command line's string; inputs: name to
    `float32[n,3,48,w]`.
    consts: inputs fixed to a scalar; shapes: names for data-dependent extents; samples: an .npz of
    inputs for verify. dump: a folder for the module after every phase, by default `OUTPUT.dump`
    where `options.dump` is on; operators: nodes that C code computes. Raises
    relaxd.errors.DeclarationError for malformed declarations, compiler.errors.CompileError for
    anything else; `verify.mismatch` leaves a few nodes that show
    it in `OUTPUT.reproducer`, unless something else is there.
    """
    request = CompileRequest.of(
        dims=dims,
        inputs=inputs,
        consts=consts,
        shapes=shapes,
        targets=(target,),
        options=options,
        operators=operators,
    )
    with _on_disk(model) as path:
        return compile_request(
            path,
            request,
            output=Path(output),
            target=target,
            samples=Path(samples) if samples else None,
            on_event=on_event,
            limits=limits,
            dump=Path(dump) if dump else None,
            reproducer=Path(output).with_name(f"{Path(output).name}.reproducer"),
        )


def compile_request(
    model: Path,
    request: CompileRequest,
    *,
    output: Path,
    target: str,
    samples: Path | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    limits: Limits | None = None,
    dump: Path | None = None,
    reproducer: Path | None = None,
    kernels: bool = True,
    name: str | None = None,
    on_usage: OnUsage = lambda usage: None,
) -> Manifest:
    """`compile_model`, from declarations that are read already; raises CompileError.

    samples: the file whose digest replaces that of the request. reproducer: a folder that receives
    what shows a mismatch again, unless it holds anything but an older reproducer, which goes.
    kernels: take those that earlier builds compiled, and leave this one's for later ones. name: of
    the model, by default its file's.
    """
    digest = digest_of_file(samples) if samples else None
    declared = dataclasses.replace(request, samples=digest, targets=(target,))
    declared.require_samples()
    job = CompileJob(
        model=str(model.absolute()),
        request=declared.to_json(),
        target=target,
        output=str(output.absolute()),
        model_name=name or model_name(model),
        samples=str(samples.absolute()) if samples else None,
        dump=_dump_folder(output, request, dump),
        verify_again=_is_set("RELAXD_VERIFY_AGAIN"),
        reproducer=_vacated(reproducer) if reproducer else None,
    )
    stored = _kernels() if kernels else None
    prepare(targets.resolve(target), request.options, kernels=stored is not None)
    manifest = run_child(
        job, on_event=on_event, limits=limits or _limits(), kernels=stored, on_usage=on_usage
    )
    assert isinstance(manifest, Manifest)
    return manifest


def inspect_request(model: Path, request: CompileRequest) -> dict[str, Any]:
    """Reports what an import of the model finds, in a process of its own; raises CompileError.

    A `.pt2` program says it all itself, and reading it runs nothing: that needs no other process.
    """
    if is_exported(model):
        return inspect_exported(model, request)
    return _report(InspectJob(str(model.absolute()), request.to_json()))


def families_request(model: Path, request: CompileRequest, target: str) -> dict[str, Any]:
    """Compiles the model up to the loops of its kernels, in a process of its own, and reports which
    family took each; raises CompileError.
    """
    return _report(FamiliesJob(str(model.absolute()), request.to_json(), target))


def _report(job: InspectJob | FamiliesJob) -> dict[str, Any]:
    report = run_child(job, limits=_limits())
    assert isinstance(report, dict)
    return report


def _limits() -> Limits:
    """Those of a build that its own user runs."""
    return Limits(unsandboxed_torchscript=_is_set("RELAXD_ALLOW_UNSANDBOXED_TORCHSCRIPT"))


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")


def _kernels() -> KernelObjects | None:
    """Kernels that builds of this machine's user keep; None where the user wants none."""
    size = os.environ.get("RELAXD_KERNEL_CACHE_MB", "")
    megabytes = int(size) if size.isdecimal() else KERNELS_MB
    return (
        KernelObjects(cache.directory() / "kernels", "local", megabytes << 20)
        if megabytes
        else None
    )


def _dump_folder(output: Path, request: CompileRequest, dump: Path | None) -> str | None:
    if dump is None and request.options.dump:
        dump = output.with_name(f"{output.name}.dump")
    return None if dump is None else str(dump.absolute())


def _vacated(folder: Path) -> str | None:
    """The folder, without an older reproducer; None where it holds anything else."""
    if (folder / REPRODUCER_START).is_file():
        shutil.rmtree(folder)
    return None if folder.exists() else str(folder.absolute())


@contextmanager
def _on_disk(model: Model) -> "Iterator[Path]":
    """The model as a file, in a folder of its own unless it is one already."""
    if isinstance(model, (str, Path)):
        yield Path(model).absolute()
        return
    with tempfile.TemporaryDirectory(prefix="relaxd-model-") as folder:
        # The outer folder is closed to others, and so to the user that a build runs as.
        path = Path(folder) / "model" / "model.onnx"
        path.parent.mkdir()
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        yield path


def digest_of_file(path: Path) -> str:
    """The digest of a file, as stores name it."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
