"""Costs of models on boards that qemu emulates, and how far their results are from those of their
framework: `python -m benchmarks.boards [--models FOLDER] [--runs N] [-o FOLDER]`.

`--models` names a folder with MLPerf Tiny's int8 models (`kws_int8.tflite` and so on), which are
compared with TFLite's reference kernels.

Flash is what a program links of the archive, and the whole program with the C library and the
emulator's files; instructions are what qemu counts during a run.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.boards import images, keywords
from benchmarks.boards.subject import Agreement, Subject, compare
from compiler import compile_model, targets
from compiler.errors import CompileError
from compiler.verify.emulation import board
from compiler.verify.run.board import program_of
from relaxd.loader.bundles.bundle import read_manifest
from tests.support.models import known

TARGETS = ("cortex-m4", "cortex-m7", "cortex-m55", "rv32imc", "rv32imafc")
RUNS = 6
_COLUMNS = (
    "model",
    "target",
    "library in flash, KiB",
    "whole program, KiB",
    "arena, KiB",
    "context, bytes",
    "stack, KiB",
    "instructions, millions",
    "runs",
    "largest difference",
)


_TINY = {
    "keyword spotting": "kws",
    "visual wake words": "vww",
    "image classification": "resnet8",
    "anomaly detection": "anomaly",
    "streaming wake word": "wakeword",
}
"""MLPerf Tiny's models, by what they are for."""


def _subjects(work: Path, models: Path | None) -> Iterator[Subject]:
    if models is not None:
        for name, file in _TINY.items():
            yield Subject(name, models / f"{file}_int8.tflite", {"batch": "1"})
        return
    yield Subject("keyword spotter, int8", keywords.write(work / "keywords.onnx"), {"n": "1"})
    yield Subject(
        "Silero VAD, float32",
        known.path_of("silero_vad_16k_op15"),
        {"batch": "1", "sequence": "576"},
        {"sr": 16000},
        {"stateN": "state"},
    )


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _kib(count: float) -> str:
    return f"{count / 1024:.1f}"


def _row(subject: Subject, target: str, work: Path, runs: int) -> str:
    bundle = work / f"{subject.name.replace(' ', '_').replace(',', '')}-{target}"
    if not bundle.exists():
        compile_model(
            subject.path,
            output=bundle,
            target=target,
            dims=subject.dims,
            consts=subject.consts,
            options={"profile": False, "verify": False},
        )
    manifest, resolved = read_manifest(bundle), targets.resolve(target)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "program")
        lacking = board.build(bundle, manifest.entry, resolved, path)
        if lacking:
            return _line(subject.name, target, lacking, *[""] * (len(_COLUMNS) - 3))
        program = program_of({"bundle": str(bundle), "target": target, "scratch": scratch})
        result = compare(subject, program, runs)
        full = images.flash(path.read_bytes())
    archive = images.flash(images.member(bundle / manifest.library))
    return _line(subject.name, target, _kib(archive), _kib(full), *_of_runs(result))


def _of_runs(result: Agreement) -> Iterator[object]:
    counted = result.counted
    yield _kib(counted["arena"])
    yield counted["context"]
    yield _kib(counted["stack"])
    yield f"{counted['instructions'] / 1e6:.2f}"
    yield result.runs
    yield f"{result.difference:.1e}"


def main() -> None:
    """Print a row for each model and target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.boards", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="where bundles are kept")
    parser.add_argument("--models", type=Path, help="where MLPerf Tiny's .tflite files are")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each model on each board")
    parser.add_argument("--target", choices=TARGETS, action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.output or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        print(_line(*_COLUMNS))
        print("|---" * len(_COLUMNS) + "|")
        for subject in _subjects(work, options.models):
            for target in options.target or TARGETS:
                try:
                    print(_row(subject, target, work, options.runs), flush=True)
                except CompileError as error:
                    empty = [""] * (len(_COLUMNS) - 3)
                    print(_line(subject.name, target, error.code, *empty), flush=True)


if __name__ == "__main__":
    main()
