"""`python -m benchmarks.kernels`: the kernels of every family at the shapes of real models, on one
thread, as a share of the processor's peak.

For each kernel the time of one run, its GFLOP/s (of a Winograd convolution those of the direct
form), the share of the peak of multiply-adds, measured in turns with it, and the GB/s of what it
has to read and write, to be compared with the machine's.

With `--candidates`, other register tiles, panels and passes of matmuls are built and measured in
turns with the compiler's own, and ranked: on a processor that nobody has tuned for, one run says
which to take. They are all correct, so only times are compared.

Busy neighbours change every figure, but hardly the ratios of what is measured in turns.
"""

import argparse
import os
import sys
import time

# TVM reads it when its thread pool starts, and its interface imports torch wherever it is
# installed, which nothing here needs.
os.environ["TVM_NUM_THREADS"] = "1"
sys.modules.setdefault("torch", None)

from collections.abc import Callable  # noqa: E402

from benchmarks.kernels.candidates import ranked  # noqa: E402
from benchmarks.kernels.cases import Case, cases  # noqa: E402
from benchmarks.kernels.timing import Measured, build, peak_of, race  # noqa: E402
from compiler import targets  # noqa: E402
from compiler.targets import Target  # noqa: E402
from compiler.targets.vector_unit import VectorUnit  # noqa: E402

QUIET = 0.9
"""Share of the processor that this process has on a quiet machine, compilation included."""


def main() -> int:
    """Print the table, or the candidates of each chosen matmul from the fastest on."""
    options = _parser().parse_args()
    wall, own = time.perf_counter(), time.thread_time()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    target = targets.resolve("native")
    peak = peak_of(target)
    chosen = [case for case in cases() if options.only in f"{case.family} {case.shape}"]
    if options.candidates:
        for case in chosen:
            if case.family == "matmul":
                _rank(case, target, options.seconds, peak)
    else:
        _table(chosen, target, options.seconds, peak)
    share = (time.thread_time() - own) / (time.perf_counter() - wall)
    if share < QUIET:
        print(f"this thread had {share:.0%} of a processor: not the figures of a quiet machine")
    return 0


def _table(chosen: list[Case], target: Target, seconds: float, peak: Callable[[], float]) -> None:
    print("| family | shape | ms | GFLOP/s | of the peak | GB/s |")
    print("|---|---|---:|---:|---:|---:|")
    for case in chosen:
        calls = {"": build(case, target)}
        print(_row(case, race(calls, case.copies, seconds, peak)[""]), flush=True)


def _row(case: Case, measured: Measured) -> str:
    seconds, rate, share = measured.time, "", ""
    if case.operations:
        rate = f"{case.operations / seconds / 1e9:.0f}"
        share = f"{measured.share_of_peak(case.operations):.0%}"
    moved = f"{case.bytes / seconds / 1e9:.1f}"
    return f"| {case.family} | {case.shape} | {seconds * 1e3:.4f} | {rate} | {share} | {moved} |"


def _rank(case: Case, target: Target, seconds: float, peak: Callable[[], float]) -> None:
    """All candidates of one matmul in turns, each as a multiple of the compiler's own time."""
    calls = {}
    for candidate in ranked(VectorUnit.of(target)):
        with candidate.chosen(target):
            calls[str(candidate)] = build(case, target)
    measured = race(calls, case.copies, seconds, peak)
    own = measured[next(iter(calls))]
    print(f"\n{case.family} {case.shape}")
    for name, one in sorted(measured.items(), key=lambda item: item[1].ratio_to(own)):
        share = one.share_of_peak(case.operations)
        print(f"{one.ratio_to(own):7.3f}  {share:4.0%}  {name}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--only", default="", help="cases with this in their family or shape")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each kernel or candidate")
    parser.add_argument(
        "--candidates", action="store_true", help="rank tiles and panels of the chosen matmuls"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
