"""Real models for every CPU target, one `relaxd compile` each, with no compiler on the path:
`python -m tests.support.cpu_zoo --markdown zoo.md`.

Needs file, readelf and objdump for its checks; emulates what qemu, Bochs and the runtimes that
are built here allow.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler import targets
from compiler.targets import Runtime, Target, TargetStatus
from compiler.targets.architectures import ARCHITECTURES
from compiler.verify.emulation import emulator, foreign
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.options import Flavour
from relaxd.loader.bundles.bundle import read_manifest
from tests.support import binaries
from tests.support.models.known import MODELS, path_of

DIMS = {
    "minilm": {"batch": "1:8", "seq": "1:64"},
    "ppocr_det": {"n": "1:2", "h": "32:96%32", "w": "32:96%32"},
}
"""Models, and ranges whose ends an emulator reaches within the time that a verification has."""
_PAGES = (2, 3, 64, 64)
"""The shape of PP-OCR's samples, within its ranges."""
CPUS = tuple(
    entry.name
    for entry in targets.registry()
    if entry.device is None and entry.name != targets.NATIVE and not entry.platform.bare
)
_EMULATORS = (
    *(
        f"qemu-{architecture.emulation.program}-static"
        for architecture in ARCHITECTURES
        if architecture.emulation and architecture.emulation.program
    ),
    *("bochs-bin", "node", *foreign.LINKERS),
)


@dataclass(frozen=True)
class Built:
    """One target's end.

    file, traits: as binaries.py says them; shapes: how many were verified; difference: the greatest
    of any, and
    range: the greatest number that the reference gave.
    """

    model: str
    target: str
    bytes: int = 0
    file: str = ""
    traits: str = ""
    status: str = ""
    shapes: int = 0
    difference: float | None = None
    range: float | None = None
    wrong: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a target does not build, or its library is not what it should be."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.resume and not options.json:
        parser.error("--resume takes up what --json names")
    results = _read_results(options.json) if options.resume else []
    with tempfile.TemporaryDirectory(prefix="relaxd-cpu-zoo-") as folder:
        for model, target in list_missing(results, options.models, options.targets):
            output = (options.output or Path(folder)) / model / target
            declared = _declared(model, Path(folder))
            results += [_read(model, result) for result in compile_all(declared, [target], output)]
            print(list(table(results))[-1], flush=True)
            if options.json:
                records = [asdict(result) for result in results]
                options.json.write_text(json.dumps(records, indent=1) + "\n")
    print(*table(results), sep="\n", flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(table(results)) + "\n")
    return int(any(result.wrong for result in results))


def _read_results(file: Path) -> list[Built]:
    """The good results of a run that stopped; none where it wrote no file."""
    records = json.loads(file.read_text()) if file.exists() else []
    return [result for result in (Built(**record) for record in records) if not result.wrong]


def list_missing(
    results: Sequence[Built], models: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """The models and targets without a result, by model."""
    known = {(result.model, result.target) for result in results}
    yield from (pair for pair in itertools.product(models, names) if pair not in known)


def compile_all(
    declared: Sequence[str], names: Sequence[str], output: Path
) -> list[dict[str, Any]]:
    """Compile with one `relaxd compile --json` for each target; on its path are emulators and
    nothing else.
    """
    chosen = [word for name in names for word in ("--target", name)]
    command = [
        sys.executable,
        "-m",
        "relaxd",
        "compile",
        *declared,
        *chosen,
        "-o",
        str(output),
        "--json",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for program in filter(None, map(shutil.which, _EMULATORS)):
            Path(folder, Path(program).name).symlink_to(program)
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": folder},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    results: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return results


def _declared(name: str, folder: Path) -> list[str]:
    """Inspect the model on the command line; its samples are written into the folder."""
    model = MODELS[name]
    tables = {"--dim": DIMS[name], "--input": model.inputs, "--option": {"profile": "false"}}
    words = (
        word
        for option, table in tables.items()
        for key, value in table.items()
        for word in (option, f"{key}={value}")
    )
    return [str(path_of(name)), *words, *_samples(name, folder)]


def _samples(name: str, folder: Path) -> list[str]:
    """Dark strokes on bright pages: on noise the detector of text says 0 everywhere, which many a
    wrong library says too.
    """
    if name != "ppocr_det":
        return []
    pages = np.full(_PAGES, 2, np.float32)
    for page, pitch in zip(pages, (3, 4), strict=True):
        for top in range(2 * pitch, _PAGES[2] - 10, 20):
            page[:, top : top + 10, 4:-4:pitch] = -2
    np.savez(folder / f"{name}.npz", x=pages)
    return ["--samples", str(folder / f"{name}.npz")]


def _read(model: str, result: dict[str, Any]) -> Built:
    target = targets.resolve(result["target"])
    if "error" in result:
        return Built(
            model, target.name, wrong=f"{result['error']['code']}: {result['error']['message']}"
        )
    bundle = Path(result["output"])
    manifest, numerics = read_manifest(bundle), json.loads((bundle / "numerics.json").read_text())
    library, outputs = bundle / manifest.library, numerics.get("outputs", ())
    return Built(
        model,
        target.name,
        bytes=library.stat().st_size,
        file=binaries.spoken(library, target),
        traits=binaries.traits(library, target),
        status=manifest.target["status"],
        shapes=len(numerics.get("points", ())),
        difference=max((output["max_abs"] for output in outputs), default=None),
        range=max((output["range"] for output in outputs), default=None),
        wrong="; ".join(problems(library, target, manifest)) or None,
    )


def problems(library: Path, target: Target, manifest: Manifest) -> Iterator[str]:
    """Where the library is not of its target."""
    message, traits = binaries.spoken(library, target), binaries.traits(library, target)
    yield from (
        f"`file` says {message}, not {words}"
        for words in binaries.expected_words(target)
        if words not in message
    )
    if traits != binaries.expected_traits(target):
        yield f"the code is for {traits}, not {binaries.expected_traits(target)}"
    mark = b"relaxd_" if manifest.flavour == Flavour.STANDALONE else b"__tvm_ffi_"
    if mark + _prefix(library, target) not in library.read_bytes():
        yield "there is no kernel's symbol"
    if target.platform.libc and binaries.newest_glibc(library) > tuple(
        map(int, target.platform.libc.split("."))
    ):
        yield f"it needs glibc {binaries.newest_glibc(library)}"
    runs = not emulator.explain_missing(target, Flavour(manifest.flavour))
    if runs and manifest.target["status"] not in (TargetStatus.EXECUTED, TargetStatus.EMULATED):
        yield f"it is {manifest.target['status']}, where an emulator is installed"
    if manifest.load.arch != target.arch or manifest.load.os != target.platform.os:
        yield f"the manifest is of {manifest.load.os} on {manifest.load.arch}"


def _prefix(library: Path, target: Target) -> bytes:
    """The prefix of the names of an archive's kernels."""
    if target.platform.runtime is not Runtime.LINKED:
        return b""
    return (
        library.with_name("model.h")
        .read_text()
        .partition('_PREFIX "')[2]
        .partition('"')[0]
        .encode()
    )


def table(results: Sequence[Built]) -> Iterator[str]:
    """A row for each target, a column for each model."""
    models = list(dict.fromkeys(result.model for result in results))
    yield f"| Target | `file` says | Code | {' | '.join(models)} |"
    yield "| --- " * (3 + len(models)) + "|"
    for target in dict.fromkeys(result.target for result in results):
        row = {result.model: result for result in results if result.target == target}
        one = next((result for result in row.values() if result.file), next(iter(row.values())))
        cells = (_outcome(row[model]) if model in row else "" for model in models)
        yield f"| `{target}` | {_kind(one.file)} | {one.traits} | {' | '.join(cells)} |"


def _kind(message: str) -> str:
    """Run `file`, without what is the same for every library."""
    return re.sub(
        r",? version 1 \(SYSV\)|,? flags:.*|,? with debug_info.*|,( not)? stripped|, static-pie "
        r"linked|, \d sections",
        "",
        message,
    )


def _outcome(result: Built) -> str:
    if result.wrong:
        return f"wrong: {result.wrong}"
    verified = (
        f", {result.shapes} shapes, {result.difference:.1e} of {result.range:.2g}"
        if result.difference is not None
        else ""
    )
    return f"{result.bytes / 1e6:.1f} MB, {result.status}{verified}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.cpu_zoo", description=__doc__)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(DIMS),
        default=list(DIMS),
        metavar="NAME",
        help=", ".join(DIMS),
    )
    parser.add_argument(
        "--targets", nargs="+", choices=CPUS, default=CPUS, metavar="NAME", help=", ".join(CPUS)
    )
    parser.add_argument("--output", type=Path, help="keep the bundles here")
    parser.add_argument("--json", type=Path, help="write the results here, each as it is known")
    parser.add_argument("--resume", action="store_true", help="leave out what --json has already")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
