"""`python -m benchmarks.kernels`: the kernels of every family at the shapes of real models, on one
thread, beside what the processor reaches at most.

For each kernel the time of one run, its GFLOP/s, the share of the peak of multiply-adds in its
arithmetic, measured in turns with it, the GB/s of what it has to read and write, which of the two
bounds it, and the share of that bound. `--regenerate` writes docs/performance: a section of the
page, roofline.png and kernels.json; it needs matplotlib.

With `--candidates`, other register tiles, panels and passes of matmuls are built and measured in
turns with the compiler's own, and ranked: on a processor that nobody has tuned for, one run says
which to take. They are all correct, so only times are compared.

With `--constant NAME`, a tuning constant of a `plan` module, such as `pooling.COLUMNS`, is measured
in turns at its own value and at others, at the case that it rests on; a kind of kernel stands for
all of its constants. `--constant` alone lists them.

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

from collections.abc import Callable, Mapping, Sequence, Set  # noqa: E402
from typing import Any  # noqa: E402

from benchmarks.documents import Document  # noqa: E402
from benchmarks.kernels import ceilings, document, page, timing  # noqa: E402
from benchmarks.kernels.candidates import candidates_for  # noqa: E402
from benchmarks.kernels.case import Arithmetic, Case  # noqa: E402
from benchmarks.kernels.cases import cases  # noqa: E402
from benchmarks.kernels.ceilings import Bandwidth  # noqa: E402
from benchmarks.kernels.constants import Constant, constants_called  # noqa: E402
from benchmarks.kernels.loops import multiply_loop, readers  # noqa: E402
from benchmarks.kernels.timing import Measurement, build, peak_of, race  # noqa: E402
from compiler import targets  # noqa: E402
from compiler.errors import CompileError  # noqa: E402
from compiler.targets import Target  # noqa: E402
from compiler.targets.caches import host_caches  # noqa: E402
from compiler.targets.vector_unit import VectorUnit  # noqa: E402
from relaxd.timing import quiet  # noqa: E402

QUIET = 0.9
"""Share of the processor that this process has on a quiet machine, compilation included."""
_TRIES, _PEAKS = 3, 20
"""Of a case while others use the processors, and of the peak of an arithmetic."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or the candidates of each chosen matmul from the fastest on; write
    docs/performance where asked.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.resume and not options.regenerate:
        parser.error("--resume needs --regenerate")
    if options.constant is not None and not constants_called(options.constant):
        parser.error(f"--constant: nothing is called {options.constant!r}; --constant lists them")
    if options.constant == "":
        for one in constants_called(""):
            print(f"{one.name:<32}{one.value!s:>8}   {one.case}")
        return 0
    wall, own = time.perf_counter(), time.thread_time()
    record = document.new_document()
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})
    target = targets.resolve("native")
    if options.constant is not None:
        for constant in constants_called(options.constant):
            _measure_constant(constant, target, options.seconds, processors)
        return 0
    chosen = [case for case in cases() if options.only in f"{case.group} {case.shape}"]
    if options.candidates:
        for case in chosen:
            if case.family == "matmul":
                _rank(case, target, options.seconds, peak_of(target, case.arithmetic))
    else:
        record = _table(record, chosen, target, options)
    if options.regenerate:
        page.regenerate(record)
    share = (time.thread_time() - own) / (time.perf_counter() - wall)
    if share < QUIET:
        print(f"this thread had {share:.0%} of a processor: not the figures of a quiet machine")
    return 0


def _table(
    record: Document, chosen: Sequence[Case], target: Target, options: argparse.Namespace
) -> Document:
    """The document with a row for every chosen case, printed as they come; with `--resume` those of
    an earlier run stand in for all that are not named.
    """
    every, file = list(cases()), page.FILE if options.regenerate else None
    if options.resume:
        again = chosen if options.only else []
        record = document.resume(record, page.FILE, [case for case in every if case not in again])
        chosen = document.missing_cases(record, every)
    if chosen or not record["bandwidth"]:
        record = _with_ceilings(record, target)
    peaks, reads = {one: peak_of(target, one) for one in Arithmetic}, readers(target)
    for line in page.case_lines(document.ratings(record)):
        print(line, flush=True)
    for case in chosen:
        rate = ceilings.meter(reads, min(case.touched, ceilings.largest(host_caches())))
        row = _row(case, target, options.seconds, peaks[case.arithmetic], rate)
        record = document.with_row(record, row, every)
        print(page.case_line(document.ratings({**record, "rows": [row]})[0]), flush=True)
        if file:
            document.write(record, file)
    if chosen:
        # Once more: what others do to memory lasts longer than a measurement.
        record = _with_ceilings(record, target)
        if file:
            document.write(record, file)
    return record


def _with_ceilings(record: Document, target: Target) -> Document:
    """The best so far of the peak of each arithmetic that the processor has instructions for, and
    of what it reads.
    """
    peaks = dict(record["peaks"])
    for one in Arithmetic:
        if multiply_loop(target, one) is not None:
            measure = peak_of(target, one)
            peaks[one] = max(peaks.get(one, 0.0), *(measure() for _ in range(_PEAKS)))
    bandwidth = ceilings.measure_bandwidth(readers(target), host_caches())
    if record["bandwidth"]:
        bandwidth = bandwidth.best_of(Bandwidth.from_json(record["bandwidth"]))
    return {**record, "peaks": peaks, "bandwidth": bandwidth.to_json()}


def _row(
    case: Case,
    target: Target,
    seconds: float,
    peak: Callable[[], float],
    rate: Callable[[], float],
) -> dict[str, Any]:
    """A case measured, again while others use the processors, up to a few times."""
    calls = {"": build(case, target)}
    for _ in range(_TRIES):
        before = quiet.clock([os.getpid()])
        measured = race(calls, case.copies, seconds, peak, rate)[""]
        others = quiet.others_between(before, quiet.clock([os.getpid()]))
        if others <= quiet.MOST:
            break
    return {
        **document.identity(case),
        "seconds": measured.time,
        "turns": len(measured.peaks),
        "peak_gflops": measured.peak,
        "share_of_peak": measured.share_of_peak(case.executed),
        "bandwidth_gb_s": measured.rate,
        "share_of_bandwidth": measured.share_of_rate(case.bytes),
        "others": others,
    }


def _rank(case: Case, target: Target, seconds: float, peak: Callable[[], float]) -> None:
    """All candidates of one matmul in turns, each as a multiple of the compiler's own time."""
    calls = {}
    for candidate in candidates_for(VectorUnit.of(target)):
        with candidate.apply(target):
            calls[str(candidate)] = build(case, target)
    print(f"\n{case.family} {case.shape}")
    _print_ranks(race(calls, case.copies, seconds, peak), case)


def _print_ranks(measured: Mapping[str, Measurement], case: Case) -> None:
    """Each as a multiple of the time of the first, which is the compiler's own, the fastest on."""
    own = next(iter(measured.values()))
    for name, one in sorted(measured.items(), key=lambda item: item[1].ratio_to(own)):
        share = f"{one.share_of_peak(case.operations):4.0%}" if one.peaks else "   -"
        print(f"{one.ratio_to(own):7.3f}  {share}  {name}", flush=True)


def _measure_constant(
    constant: Constant, target: Target, seconds: float, processors: Set[int]
) -> None:
    """The case of one constant at its value and at others, in turns."""
    case = constant.find_case()
    print(f"\n{constant.name}: {case.group} {case.shape}")
    calls, codes = {}, {}
    for value in (constant.value, *constant.candidates):
        name = f"{value}" if calls else f"{value}, as compiled"
        with constant.replaced_by(value):
            try:
                code = timing.text_of(timing.kernels_of(case, target))
                if code in codes:
                    print(f"         {name}: the same loops as {codes[code]}")
                    continue
                codes[code], calls[name] = name, build(case, target)
            except (AssertionError, CompileError, ValueError) as error:
                print(f"         {name}: no kernel: {error}")
    if len(calls) < 2:
        return
    if constant.threads:
        os.sched_setaffinity(0, processors)
        measured = timing.race_of_threads(calls, case.copies, seconds, len(processors))
    else:
        measured = race(calls, case.copies, seconds, peak_of(target, case.arithmetic))
    _print_ranks(measured, case)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--only", default="", help="cases with this in their family or shape")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each kernel or candidate")
    parser.add_argument(
        "--candidates", action="store_true", help="rank tiles and panels of the chosen matmuls"
    )
    parser.add_argument(
        "--constant",
        nargs="?",
        const="",
        metavar="NAME",
        help="measure other values of a tuning constant; list all without a name",
    )
    parser.add_argument(
        "--regenerate", action="store_true", help="write docs/performance: page, chart and JSON"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the file's quiet rows of cases not named"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
