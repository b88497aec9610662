"""Random graphs beside ONNX Runtime and float64: `python -m tests.fuzz --seconds 600 --seed 7
--geometry 512/32`; `--repeat FILE` judges a kept one.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.fuzz import case as cases
from tests.fuzz.batch import answered_at_once
from tests.fuzz.case import Case
from tests.fuzz.generate import generate
from tests.fuzz.judge import Judge, Judgement, Verdict
from tests.fuzz.shrink import shrink
from tests.fuzz.tally import Tally
from tests.support.geometries import NAMES, NATIVE

KEPT_CASES = Path(".fuzz")
OPTIMISED = 10
_REPORTED = 20
"""After how many builds it says how far it is."""
ANY, ALL = "any", "all"
"""The geometry that the seed chooses; all of them, each graph at each."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where an answer was wrong or a build or run crashed."""
    options = _parser().parse_args(arguments)
    seed = time.time_ns() % 10**9 if options.seed is None else options.seed
    geometries = options.geometry or (NAMES[seed % len(NAMES)],)
    judge = Judge(geometries[0], llvm=options.llvm or 0)
    tallies = {name: Tally() for name in geometries}
    end = time.monotonic() + options.seconds
    for ending in (signal.SIGINT, signal.SIGTERM):
        # A shell lets its background jobs ignore the former.
        signal.signal(ending, signal.default_int_handler)
    print(f"seed {seed}, geometry {', '.join(geometries)}", flush=True)
    try:
        if options.repeat:
            return _repeat(judge, options.repeat, geometries)
        for number, batch in enumerate(_batches(seed, options.graphs, options.together)):
            if time.monotonic() > end or _failures(tallies) >= options.findings:
                break
            if options.llvm is None:
                judge.llvm = 0 if number % OPTIMISED else 3
            _judge(judge, batch, tallies, options)
            if number % _REPORTED == _REPORTED - 1:
                print(f"{tallies[geometries[0]].graphs} graphs so far", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        judge.stop()
    for name, tally in tallies.items():
        print(tally.line(seed, name))
    judged = sum(tally.graphs for tally in tallies.values())
    print(f"{judged / max(_processor_time() / 60, 1e-9):.0f} graphs a minute of one processor")
    return int(_failures(tallies) > 0)


def _geometries(asked: str) -> tuple[str, ...]:
    """The geometries, or none where the seed is to choose one."""
    names = {ALL: NAMES, ANY: ()}.get(asked, tuple(asked.split(",")))
    if unknown := sorted(set(names) - set(NAMES)):
        raise argparse.ArgumentTypeError(
            f"no geometry is called {unknown[0]}: {', '.join((*NAMES, ANY, ALL))}"
        )
    return names


def _failures(tallies: Mapping[str, Tally]) -> int:
    return sum(tally.failures for tally in tallies.values())


def _judge(
    judge: Judge, batch: list[Case], tallies: Mapping[str, Tally], options: argparse.Namespace
) -> None:
    """Judges the graphs at every geometry of the run, beside the same references."""
    for group, union in answered_at_once(batch, judge.is_answered):
        for geometry, tally in tallies.items():
            judge.geometry = geometry
            for case, judgement in judge.judge_all(group, union):
                tally.add(judgement)
                if judgement.verdict not in (Verdict.RIGHT, Verdict.REFUSED) or options.verbose:
                    _tell(geometry, case.seed, judgement)
                if judgement.verdict.failure:
                    _keep(judge, case, judgement, options)


def _processor_time() -> float:
    """Seconds that this process has used, and those of its children that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _batches(seed: int, graphs: int, combined: int) -> Iterator[list[Case]]:
    """The graphs of consecutive seeds, quantized ones apart."""
    waiting: dict[bool, list[Case]] = {False: [], True: []}
    for number in range(graphs):
        case = generate(seed + number)
        own = waiting[case.quantized]
        own.append(case)
        if len(own) == combined:
            yield own.copy()
            own.clear()
    yield from (own for own in waiting.values() if own)


def _tell(geometry: str, seed: int, judgement: Judgement) -> None:
    code = f" {judgement.code}" if judgement.code else ""
    why = " ".join(judgement.why.split())[:400]
    print(f"{seed} at {geometry}: {judgement.verdict.value}{code}: {why}", flush=True)


def _keep(judge: Judge, case: Case, judgement: Judgement, options: argparse.Namespace) -> None:
    """Writes the smallest graph that fails alike."""

    def alike(smaller: Case) -> bool:
        result = judge.judge(smaller)
        return result.verdict is judgement.verdict and result.code == judgement.code

    small = shrink(case, alike, judge.values.ask, options.shrink_seconds)
    last = judge.judge(small)
    kind = judgement.verdict.value.replace(" ", "_")
    stem = options.keep / f"{kind}_{judge.geometry.replace('/', '_')}_{case.seed}"
    path = stem.with_suffix(".onnx")
    command = (
        f"python -m tests.fuzz --geometry {judge.geometry} --llvm {judge.llvm} --repeat {path}"
    )
    about = {"verdict": last.verdict.value, "code": last.code, "why": last.why}
    small.write(stem, {**about, "graph_seed": case.seed, "command": command})
    operators = " ".join(node.op_type for node in small.model.graph.node)
    print(f"  kept {path}: {operators}; {command}", flush=True)


def _repeat(judge: Judge, path: Path, geometries: Sequence[str]) -> int:
    case, failed = cases.read(path), False
    for geometry in geometries:
        judge.geometry = geometry
        judgement = judge.judge(case)
        _tell(geometry, case.seed, judgement)
        failed |= judgement.verdict.failure
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="begin no graph after that")
    parser.add_argument("--graphs", type=int, default=10**9, help="at most so many")
    parser.add_argument("--seed", type=int, help="of the first graph; by default a new one")
    parser.add_argument(
        "--geometry",
        type=_geometries,
        default=(NATIVE,),
        help=f"one or more of {', '.join(NAMES)}, separated by commas: each graph at each of them,"
        " beside the same references; all: at all of them; any: the seed chooses one",
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
    parser.add_argument("--together", type=int, default=16, help="graphs in one build")
    parser.add_argument(
        "--keep", type=Path, default=KEPT_CASES, help="a folder for graphs that fail"
    )
    parser.add_argument("--shrink-seconds", type=float, default=120, help="for each that fails")
    parser.add_argument("--repeat", type=Path, help="a kept graph, to be judged again")
    parser.add_argument("--verbose", action="store_true", help="a line for every graph")
    return parser


if __name__ == "__main__":
    sys.exit(main())
