"""Runs every kernel family and real models in AVX-512 code on an emulated processor: `python -m
tests.avx512`.

Minutes of processor time. Needs Bochs: apt-get install bochs bochs-term bochsbios vgabios.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

# TVM's function interface imports torch wherever it is installed, and nothing here needs it.
sys.modules.setdefault("torch", None)

from compiler import targets  # noqa: E402
from compiler.targets import Target  # noqa: E402
from tests.avx512 import machine, models  # noqa: E402
from tests.avx512.kernels import Kernels  # noqa: E402
from tests.avx512.machine import PROCESSORS  # noqa: E402
from tests.compiler.passes.families import FAMILIES  # noqa: E402

TOLERANCE = 1e-3
_SECONDS = 1800


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a result is not close to what it should be, 2 where nothing can
    be run.
    """
    options = _parser().parse_args(arguments)
    if why := machine.lacking():
        print(why, file=sys.stderr)
        return 2
    wrong = 0
    for target in map(targets.resolve, options.targets):
        print(
            f"| {target.name} on {PROCESSORS[target.name].value} | Points | Greatest difference |",
            "| --- | --- | --- |",
            sep="\n",
        )
        if options.families:
            wrong += sum(not row for row in _families(target, options.families))
        for name in options.models:
            wrong += sum(not row for row in _model(target, name))
    return int(wrong > 0)


def _families(target: Target, names: Sequence[str]) -> Iterator[bool]:
    """A row for each family: whether all of its results were close to float64's."""
    with tempfile.TemporaryDirectory(prefix="relaxd-avx512-") as folder:
        kernels = Kernels.build(target, names, Path(folder))
        turns = range(kernels.turns())
        results = list(
            kernels.results(kernels.start(PROCESSORS[target.name], turns, _SECONDS), turns)
        )
    for name in names:
        own = [(case, got) for case, got in results if case.family == name]
        close = [case.close(got) for case, got in own]
        greatest = max(case.difference(got) for case, got in own)
        print(
            f"| {name} | {len(own)} | {greatest:.1e}{'' if all(close) else ', wrong'} |", flush=True
        )
        yield all(close)


def _model(target: Target, name: str) -> Iterator[bool]:
    """A row for each shape of a model: whether it was close to ONNX Runtime's."""
    with tempfile.TemporaryDirectory(prefix="relaxd-avx512-") as folder:
        for point in models.run(name, target, Path(folder), _SECONDS):
            shape = ", ".join(f"{axis}={extent}" for axis, extent in point.dims.items())
            close = point.difference <= TOLERANCE
            print(
                f"| {name} | {shape} | {point.difference:.1e}{'' if close else ', wrong'} |",
                flush=True,
            )
            yield close


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.avx512", description=__doc__)
    parser.add_argument(
        "--targets", nargs="+", choices=list(PROCESSORS), default=list(PROCESSORS), metavar="NAME"
    )
    parser.add_argument(
        "--families", nargs="*", choices=list(FAMILIES), default=list(FAMILIES), metavar="NAME"
    )
    parser.add_argument(
        "--models",
        nargs="*",
        choices=list(models.SHAPES),
        default=list(models.SHAPES),
        metavar="NAME",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
