"""Random TorchScript programs beside torch: `python -m tests.fuzz.scripts --seconds 600 --seed 7
--geometry 512/32`.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from tests.fuzz.child import Child, Died
from tests.fuzz.judge import Judgement, Verdict
from tests.fuzz.scripts.source import Script, generate
from tests.fuzz.tally import Tally
from tests.support.geometries import NAMES, NATIVE

Judge = Callable[[Script], Judgement]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where an answer was wrong or a build or run crashed."""
    options = _parser().parse_args(arguments)
    # Tests hide torch from their own process.
    if PathFinder.find_spec("torch") is None:
        print("no program was drawn: torch is not installed")
        return 0
    seed = time.time_ns() % 10**9 if options.seed is None else options.seed
    child = Child("tests.fuzz.scripts.engine:judge", 180.0, torch=True)
    tally, end = Tally(), time.monotonic() + options.seconds
    print(f"seed {seed}, geometry {options.geometry}", flush=True)
    try:
        for number in range(options.programs):
            if time.monotonic() > end:
                break
            _try(generate(seed + number), _judge_of(child, options), tally, options)
    finally:
        child.stop()
    print(tally.line(seed, options.geometry).replace("graphs", "programs", 1))
    return int(any(verdict.failure for verdict in tally.verdicts))


def _judge_of(child: Child, options: argparse.Namespace) -> Judge:
    def judge(script: Script) -> Judgement:
        answer = child.ask((script, options.geometry, options.llvm))
        if isinstance(answer, Died):
            return Judgement(Verdict.SLOW if answer.slow else Verdict.CRASH, answer.why, "crash")
        assert isinstance(answer, Judgement)
        return answer

    return judge


def _try(script: Script, judge: Judge, tally: Tally, options: argparse.Namespace) -> None:
    """Judges a program; writes the shortest that fails alike."""
    judgement = judge(script)
    tally.add(judgement)
    if judgement.verdict is not Verdict.RIGHT or options.verbose:
        why = " ".join(judgement.why.split())[:400]
        print(f"{script.seed}: {judgement.verdict.value} {judgement.code}: {why}", flush=True)
    if judgement.verdict.failure:
        small = shrink(script, judgement, judge)
        options.keep.mkdir(parents=True, exist_ok=True)
        path = options.keep / f"script_{options.geometry.replace('/', '_')}_{script.seed}.py"
        about = f"# columns {small.columns}, rows {small.rows}: {judgement.why}"
        path.write_text(f"{' '.join(about.split())}\n{small.source}")
        print(f"  kept {path}\n{small.source}", flush=True)


def shrink(script: Script, judgement: Judgement, judge: Judge) -> Script:
    """Less every statement without which it fails alike."""
    position = 0
    while position < len(script.statements):
        result = judge(smaller := script.without(position))
        if (result.verdict, result.code) == (judgement.verdict, judgement.code):
            script = smaller
        else:
            position += 1
    return script


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.scripts", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="begin no program after that")
    parser.add_argument("--programs", type=int, default=10**9, help="at most so many")
    parser.add_argument("--seed", type=int, help="of the first program; by default a new one")
    parser.add_argument("--geometry", choices=NAMES, default=NATIVE)
    parser.add_argument("--llvm", type=int, default=3, choices=range(4), help="as for graphs")
    parser.add_argument("--keep", type=Path, default=Path(".fuzz"), help="a folder for failures")
    parser.add_argument("--verbose", action="store_true", help="a line for every program")
    return parser


if __name__ == "__main__":
    sys.exit(main())
