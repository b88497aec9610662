"""Inputs that no honest caller gives, to small models in guarded memory: `python -m
tests.fuzz.hostile --draws 200 --operator Gather,Resize --flavour standalone,vm --seed 7`.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.fuzz.hostile.judge import Flavour, Judge, Judgement, Verdict
from tests.fuzz.hostile.subject import BaseSubject
from tests.fuzz.hostile.table import SUBJECTS

SHOWN = 3
"""Findings of one verdict that are shown for each subject."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a draw is a finding."""
    options = _parser().parse_args(arguments)
    seed = time.time_ns() % 10**9 if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    total: Counter[Verdict] = Counter()
    for flavour in options.flavour:
        total += _run(flavour, _chosen(options.operator), seed, options)
    return int(any(verdict.fault for verdict in total))


def _run(
    flavour: Flavour, subjects: Sequence[BaseSubject], seed: int, options: argparse.Namespace
) -> Counter[Verdict]:
    judge = Judge(flavour)
    total: Counter[Verdict] = Counter()
    try:
        if lack := judge.lacking():
            print(f"{flavour.value}: left out, {lack}")
            return total
        numbers = range(options.draws) if options.draw is None else [options.draw]
        for subject in subjects:
            total += _judged(judge, flavour, subject, seed, numbers, options.verbose)
    finally:
        judge.stop()
    print(f"{flavour.value}: {len(subjects)} operators, {_listed(total)}", flush=True)
    return total


def _judged(
    judge: Judge,
    flavour: Flavour,
    subject: BaseSubject,
    seed: int,
    numbers: Sequence[int],
    verbose: bool,
) -> Counter[Verdict]:
    counts: Counter[Verdict] = Counter()
    unbuilt = judge.build(subject)
    for number in numbers if unbuilt is None else numbers[:1]:
        judgement = unbuilt or judge.judge(subject, seed, number)
        counts[judgement.verdict] += 1
        if verbose or (judgement.verdict.fault and counts[judgement.verdict] <= SHOWN):
            _tell(flavour, subject, seed, number, judgement)
    if any(verdict.fault for verdict in counts) or verbose:
        print(f"{flavour.value} {subject.name}: {_listed(counts)}", flush=True)
    return counts


def _tell(
    flavour: Flavour, subject: BaseSubject, seed: int, number: int, judgement: Judgement
) -> None:
    feed = ", ".join(
        f"{name}{list(array.shape)}={array.tolist()}"[:200]
        for name, array in subject.feed(seed, number).items()
        if name in subject.hostile
    )
    print(f"{flavour.value} {subject.name} {judgement.verdict.value}: {judgement.why[:400]}")
    print(f"  {feed}")
    command = f"python -m tests.fuzz.hostile --operator {subject.name} --seed {seed}"
    print(f"  {command} --draw {number} --flavour {flavour.value}", flush=True)


def _listed(counts: Counter[Verdict]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])


def _chosen(asked: str | None) -> list[BaseSubject]:
    """The subjects whose names begin with one of those asked for."""
    if asked is None:
        return list(SUBJECTS.values())
    names = asked.split(",")
    return [
        subject
        for subject in SUBJECTS.values()
        if any(subject.name.startswith(name) for name in names)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the inputs; by default a new one")
    parser.add_argument("--draws", type=int, default=200, help="of each operator")
    parser.add_argument("--draw", type=int, help="one draw alone, by its number")
    parser.add_argument("--operator", help="names, or how they begin, separated by commas")
    parser.add_argument(
        "--flavour",
        type=lambda names: [Flavour(name) for name in names.split(",")],
        default=[Flavour.STANDALONE, Flavour.VM],
        help=f"one or more of {', '.join(Flavour)}, separated by commas",
    )
    parser.add_argument("--verbose", action="store_true", help="a line for every draw")
    return parser


if __name__ == "__main__":
    sys.exit(main())
