"""Runs every kernel family in AVX-512 code on an emulated processor: `python -m tests.avx512`.

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
from compiler.verify.emulation.pc import bochs  # noqa: E402
from tests.avx512.kernels import Kernels  # noqa: E402
from tests.compiler.passes.families import FAMILIES  # noqa: E402

TARGETS = ("x86-64-v4", "x86-64-v4-vnni")
_SECONDS = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a result is not close to what it should be, 2 where nothing can
    be run.
    """
    options = _parser().parse_args(arguments)
    if why := bochs.explain_missing():
        print(why, file=sys.stderr)
        return 2
    wrong = 0
    for target in map(targets.resolve, options.targets):
        (processor,) = target.emulator or ()
        print(f"| {target.name} on {processor} | Points | Greatest difference |")
        print("| --- | --- | --- |")
        wrong += sum(not row for row in _families(target, options.families))
    return int(wrong > 0)


def _families(target: Target, names: Sequence[str]) -> Iterator[bool]:
    """A row for each family: whether all of its results were close to float64's."""
    with tempfile.TemporaryDirectory(prefix="relaxd-avx512-") as folder:
        kernels = Kernels.build(target, names, Path(folder))
        results = [
            result for turn in range(kernels.turns()) for result in kernels.results(turn, _SECONDS)
        ]
    for name in names:
        own = [(case, got) for case, got in results if case.family == name]
        close = [case.close(got) for case, got in own]
        greatest = max(case.difference(got) for case, got in own)
        print(
            f"| {name} | {len(own)} | {greatest:.1e}{'' if all(close) else ', wrong'} |", flush=True
        )
        yield all(close)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.avx512", description=__doc__)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS, metavar="NAME")
    parser.add_argument(
        "--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES), metavar="NAME"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
