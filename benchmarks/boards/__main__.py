"""What models take on boards that qemu emulates: `python -m benchmarks.boards [-o FOLDER]`.

Flash is what a program links of the archive; instructions are what qemu counts during one run.
"""

import argparse
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.boards import keywords
from compiler import compile_model, targets
from compiler.errors import CompileError
from compiler.verify.emulation import board
from compiler.verify.run.board import program_of
from relaxd.loader.bundle import read_manifest
from relaxd.loader.samples import dim_values, draw
from tests import models

TARGETS = ("cortex-m4", "cortex-m7", "cortex-m55")
_LINE = "| {} | {} | {} | {} | {} | {} | {} |"
_ALLOCATED, _NOTHING = 2, 8


@dataclass(frozen=True)
class Subject:
    """A model, and what a request declares of it."""

    name: str
    path: Path
    dims: Mapping[str, str]
    consts: Mapping[str, int] = field(default_factory=dict)


def _subjects(work: Path) -> Iterator[Subject]:
    yield Subject("keywords, int8", keywords.write(work / "keywords.onnx"), {"n": "1"})
    voice = models.path_of("silero_vad_16k_op15")
    yield Subject("Silero VAD", voice, {"batch": "1", "sequence": "576"}, {"sr": 16000})


def sections(program: bytes) -> Iterator[tuple[int, int, int]]:
    """Type, flags and size of each section of a 32-bit ELF file."""
    (table,) = struct.unpack_from("<I", program, 0x20)
    size, count = struct.unpack_from("<HH", program, 0x2E)
    for at in range(table, table + size * count, size):
        kind, flags = struct.unpack_from("<II", program, at + 4)
        yield kind, flags, struct.unpack_from("<I", program, at + 20)[0]


def flash(archive: bytes) -> int:
    """Bytes of the archive's object that a program keeps: code, constants and tables."""
    start = archive.index(b"\x7fELF")
    return sum(
        size
        for kind, flags, size in sections(archive[start:])
        if flags & _ALLOCATED and kind != _NOTHING
    )


def _row(subject: Subject, target: str, work: Path) -> str:
    name = subject.name
    bundle = work / f"{name.replace(' ', '_').replace(',', '')}-{target}"
    if not bundle.exists():
        compile_model(
            subject.path,
            output=bundle,
            target=target,
            dims=subject.dims,
            consts=subject.consts,
            options={"profile": False},
        )
    manifest, resolved = read_manifest(bundle), targets.resolve(target)
    with tempfile.TemporaryDirectory() as scratch:
        lacking = board.build(bundle, manifest.entry, resolved, Path(scratch, "program"))
        if lacking:
            return _LINE.format(name, target, lacking, "", "", "", "")
        spec = {"bundle": str(bundle), "target": target, "scratch": scratch}
        values = dim_values(manifest.dims, {})
        _, counted = program_of(spec).measured(draw(manifest.inputs, values, 0))
    archive = (bundle / manifest.library).read_bytes()
    return _LINE.format(
        name,
        target,
        f"{flash(archive) / 1024:.0f}",
        f"{counted['arena'] / 1024:.1f}",
        counted["context"],
        f"{counted['stack'] / 1024:.1f}",
        f"{counted['instructions'] / 1e6:.2f}",
    )


def main() -> None:
    """Print a row for each model and target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.boards", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="where bundles are kept")
    parser.add_argument("--target", choices=TARGETS, action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.output or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        print(
            _LINE.format(
                "",
                "target",
                "flash, KiB",
                "arena, KiB",
                "context, bytes",
                "stack, KiB",
                "instructions, millions",
            )
        )
        print("|---" * 7 + "|")
        for subject in _subjects(work):
            for target in options.target or TARGETS:
                try:
                    print(_row(subject, target, work), flush=True)
                except CompileError as error:
                    print(
                        _LINE.format(subject.name, target, error.code, "", "", "", ""), flush=True
                    )


if __name__ == "__main__":
    main()
