"""Real models for every target with a GPU, as far as a machine without one gets: `python -m
tests.support.gpu_zoo --markdown zoo.md`.

A build that ends well has every kernel bound to a grid and code made of it, on CUDA machine code
for the architecture named: by the code's own header, and by cuobjdump where that is installed. For
OpenCL it has run where there is such a device; for WebGPU its shaders are what Dawn takes, where
that is installed.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from compiler import compile_model, targets
from compiler.errors import CompileError
from compiler.toolchain.cuda import architecture_of
from relaxd.contract.bundle.manifest import Manifest
from tests.support import cuobjdump, wgsl
from tests.support.models.known import MODELS, path_of

NAMES = ("minilm", "resnet50", "llama")
DEVICES = tuple(entry.name for entry in targets.registry() if entry.device is not None)


@dataclass(frozen=True)
class Built:
    """One build: seconds it took; library_bytes: of the file that holds the kernels; machine_code:
    its architecture on CUDA.

    kernels: how many cuobjdump finds in that, None where it is not installed.
    """

    model: str
    target: str
    seconds: float
    library_bytes: int = 0
    machine_code: str | None = None
    kernels: int | None = None
    status: str | None = None
    error: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a build fails for another reason than a toolkit that is not installed."""
    options = _parser().parse_args(arguments)
    results = []
    for model in options.models:
        for target in options.targets:
            results.append(build(model, target, options.keep))
            print(*_cells(results[-1]), sep="  ", flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text("\n".join(table(results)) + "\n")
    failed = [
        result for result in results if result.error and not result.error.startswith("toolchain.")
    ]
    print(f"{len(results) - len(failed)} of {len(results)} built, or lack a toolkit")
    return int(bool(failed))


def build(name: str, target: str, keep: Path | None = None) -> Built:
    """The model built for the target in a process of its own, and what its library holds; `keep`:
    where bundles are to stay.
    """
    model, started = MODELS[name], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="relaxd-gpu-zoo-") as folder:
        try:
            bundle = (keep or Path(folder)) / f"{name}-{target}"
            manifest = compile_model(
                path_of(name),
                output=bundle,
                target=target,
                dims=model.dims,
                inputs=model.inputs or None,
                consts=model.consts or None,
            )
        except CompileError as error:
            return Built(name, target, time.monotonic() - started, error=f"{error.code}: {error}")
        return _read(name, target, time.monotonic() - started, bundle, manifest)


def _read(name: str, target: str, seconds: float, bundle: Path, manifest: Manifest) -> Built:
    library = (bundle / manifest.library).read_bytes()
    match = cuobjdump.CUBIN.search(library)
    code = library[match.start() :] if match else None
    architecture = architecture_of(code) if code else None
    seen, kernels = (
        cuobjdump.disassemble(code) if code and cuobjdump.command() else ({architecture}, None)
    )
    wrong = {manifest.load.sm} != seen | {architecture} or kernels == set()
    error = (
        f"the library holds code for {architecture}, not {manifest.load.sm}"
        if wrong
        else _refused(manifest, library)
    )
    count = None if kernels is None else len(kernels)
    return Built(
        name, target, seconds, len(library), architecture, count, manifest.target["status"], error
    )


def _refused(manifest: Manifest, library: bytes) -> str | None:
    if manifest.load.device != "webgpu" or not wgsl.present():
        return None
    refused = wgsl.refuse(wgsl.shaders(library))
    return "; ".join(f"{name}: {what}" for name, what in refused.items()) or None


def table(results: Sequence[Built]) -> Iterator[str]:
    """A row for each build."""
    yield "| model | target | compiled in | library | machine code | status |"
    yield "|---|---|---|---|---|---|"
    for result in results:
        yield f"| {' | '.join(_cells(result))} |"


def _cells(result: Built) -> tuple[str, ...]:
    outcome = result.error or result.status or ""
    size = f"{result.library_bytes / 1e6:.1f} MB" if result.library_bytes else "-"
    code = (
        f"{result.machine_code}{f', {result.kernels} kernels' if result.kernels else ''}"
        if result.machine_code
        else "-"
    )
    return result.model, result.target, f"{result.seconds:.0f} s", size, code, outcome


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.gpu_zoo", description=__doc__)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(MODELS),
        default=NAMES,
        metavar="NAME",
        help=", ".join(NAMES),
    )
    parser.add_argument(
        "--targets",
        nargs="+",
        choices=DEVICES,
        default=DEVICES,
        metavar="NAME",
        help=", ".join(DEVICES),
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the bundles here")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
