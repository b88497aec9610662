"""Random graphs beside ONNX Runtime and float64: `python -m tests.fuzz --seconds 600 --seed 7
--geometry 512/32`; `--repeat FILE` judges a kept one.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz import case as cases
from tests.fuzz.case import Case
from tests.fuzz.generate import generate
from tests.fuzz.judge import Judge, Judgement, Verdict
from tests.fuzz.shrink import shrink
from tests.fuzz.tally import Tally
from tests.geometries import NAMES, NATIVE

KEPT = Path(".fuzz")
OPTIMISED = 10
ANY = "any"
"""The geometry that the seed chooses."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where an answer was wrong or a build or run crashed."""
    options = _parser().parse_args(arguments)
    seed = time.time_ns() % 10**9 if options.seed is None else options.seed
    if options.geometry == ANY:
        options.geometry = NAMES[seed % len(NAMES)]
    judge, tally = Judge(options.geometry, llvm=options.llvm or 0), Tally()
    end = time.monotonic() + options.seconds
    print(f"seed {seed}, geometry {options.geometry}", flush=True)
    try:
        if options.repeat:
            return _repeat(judge, options.repeat)
        for number, batch in enumerate(_batches(seed, options.graphs, options.together)):
            if time.monotonic() > end or tally.failures >= options.findings:
                break
            if options.llvm is None:
                judge.llvm = 0 if number % OPTIMISED else 3
            for case, judgement in judge.judge_all(batch):
                tally.add(judgement)
                if judgement.verdict not in (Verdict.RIGHT, Verdict.REFUSED) or options.verbose:
                    _tell(case.seed, judgement)
                if judgement.verdict.failure:
                    _keep(judge, case, judgement, options)
    finally:
        judge.stop()
    print(tally.line(seed, options.geometry))
    print(
        f"{tally.graphs / max(_processor_time() / 60, 1e-9):.0f} graphs a minute of one processor"
    )
    return int(tally.failures > 0)


def _processor_time() -> float:
    """Seconds that this process has used, and those of its children that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _batches(seed: int, graphs: int, together: int) -> Iterator[list[Case]]:
    """The graphs of consecutive seeds, quantised ones apart."""
    waiting: dict[bool, list[Case]] = {False: [], True: []}
    for number in range(graphs):
        case = generate(seed + number)
        own = waiting[case.quantized]
        own.append(case)
        if len(own) == together:
            yield own.copy()
            own.clear()
    yield from (own for own in waiting.values() if own)


def _tell(seed: int, judgement: Judgement) -> None:
    code = f" {judgement.code}" if judgement.code else ""
    why = " ".join(judgement.why.split())[:400]
    print(f"{seed}: {judgement.verdict.value}{code}: {why}", flush=True)


def _keep(judge: Judge, case: Case, judgement: Judgement, options: argparse.Namespace) -> None:
    """Writes the smallest graph that fails alike."""

    def alike(smaller: Case) -> bool:
        found = judge.judge(smaller)
        return found.verdict is judgement.verdict and found.code == judgement.code

    small = shrink(case, alike, judge.values.ask, options.shrink_seconds)
    last = judge.judge(small)
    kind = judgement.verdict.value.replace(" ", "_")
    stem = options.keep / f"{kind}_{options.geometry.replace('/', '_')}_{case.seed}"
    path = stem.with_suffix(".onnx")
    command = (
        f"python -m tests.fuzz --geometry {options.geometry} --llvm {judge.llvm} --repeat {path}"
    )
    about = {"verdict": last.verdict.value, "code": last.code, "why": last.why}
    small.write(stem, {**about, "graph_seed": case.seed, "command": command})
    operators = " ".join(node.op_type for node in small.model.graph.node)
    print(f"  kept {path}: {operators}; {command}", flush=True)


def _repeat(judge: Judge, path: Path) -> int:
    case = cases.read(path)
    judgement = judge.judge(case)
    _tell(case.seed, judgement)
    return int(judgement.verdict.failure)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="begin no graph after that")
    parser.add_argument("--graphs", type=int, default=10**9, help="at most so many")
    parser.add_argument("--seed", type=int, help="of the first graph; by default a new one")
    parser.add_argument(
        "--geometry", choices=(*NAMES, ANY), default=NATIVE, help="any: the seed chooses one"
    )
    parser.add_argument(
        "--findings", type=int, default=10**9, help="begin no build after so many failures"
    )
    parser.add_argument(
        "--llvm",
        type=int,
        choices=range(4),
        help=f"its level of optimisation; by default 3 in every {OPTIMISED}th build, else 0",
    )
    parser.add_argument("--together", type=int, default=8, help="graphs in one build")
    parser.add_argument("--keep", type=Path, default=KEPT, help="a folder for graphs that fail")
    parser.add_argument("--shrink-seconds", type=float, default=120, help="for each that fails")
    parser.add_argument("--repeat", type=Path, help="a kept graph, to be judged again")
    parser.add_argument("--verbose", action="store_true", help="a line for every graph")
    return parser


if __name__ == "__main__":
    sys.exit(main())
