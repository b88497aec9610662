"""`python -m benchmarks.judge`: builds each model once, verifies it with several seeds, then plants
faults for every vector unit, and prints how many right builds are refused and how many faults are
caught: `python -m benchmarks.judge --json rows.json --resume --part 1/4`.

--quick takes three small models and two seeds. Exit status 1 where a right build is refused or a
fault is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.judge.children import run_tasks
from benchmarks.judge.outcome import NO_EFFECT, NOT_FOUND, NOT_PLANTED, Row, Task
from relaxd.contract.bundle.numerics import AGREED

SEEDS = 5
FAULTS_EACH = 44
"""Tried in each of thirty models: some have nothing that a fault changes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a verification, then both rates and what went wrong."""
    from benchmarks.judge.subjects import QUICK, SUBJECTS

    parser = _parser()
    options = parser.parse_args(arguments)
    if options.resume and not options.json:
        parser.error("--resume needs --json FILE")
    names = options.models or list(QUICK if options.quick else SUBJECTS)
    if unknown := [name for name in names if name not in SUBJECTS]:
        parser.error(f"unknown models: {', '.join(unknown)}")
    seeds = options.seeds if options.seeds is not None else (2 if options.quick else SEEDS)
    faults = options.faults if options.faults is not None else (6 if options.quick else None)
    rows = _read(options.json) if options.resume else {}
    part, parts = options.part
    for name in names[part - 1 :: parts]:
        tasks = [task for task in plan(name, seeds, faults) if task not in rows]
        for row in run_tasks(name, tasks, options.seconds):
            rows[row.task] = row
            print(row, flush=True)
            if options.json:
                _write(options.json, list(rows.values()))
    print(*rates(list(rows.values())), sep="\n")
    return 0 if all(row.right for row in rows.values() if row.counted) else 1


def plan(name: str, seeds: int, faults: int | None) -> Iterator[Task]:
    """The tasks of a model: right builds, then faults of all kinds in turn, each at the next vector
    unit. faults: how many; None for those of the models in FAULTED.
    """
    from benchmarks.judge.faults import FAULTS
    from benchmarks.judge.subjects import FAULTED
    from tests.support.geometries import GEOMETRIES

    for seed in range(seeds):
        yield Task(name, seed)
    count = faults if faults is not None else (FAULTS_EACH if name in FAULTED else 0)
    units = list(GEOMETRIES)
    for number in range(count):
        again, kind = divmod(number, len(FAULTS))
        unit = units[(kind + again) % len(units)]
        yield Task(name, number % SEEDS, FAULTS[kind], number, unit)


def rates(rows: Sequence[Row]) -> Iterator[str]:
    """Both rates, what was left out, the slowest verifications, and what went wrong."""
    counted = [row for row in rows if row.counted]
    right = [row for row in counted if not row.task.fault]
    faulty = [row for row in counted if row.task.fault]
    models, planted = {row.task.subject for row in right}, {row.task.subject for row in faulty}
    refused = sum(not row.right for row in right)
    caught = sum(row.right for row in faulty)
    yield f"right builds refused: {refused} of {len(right)} of {len(models)} models"
    yield f"planted faults caught: {caught} of {len(faulty)} in {len(planted)} models"
    for word in (NO_EFFECT, NOT_PLANTED, NOT_FOUND):
        yield f"{word}: {sum(row.outcome.verdict == word for row in rows)}"
    passed = [row.outcome.slack for row in rows if row.outcome.verdict in AGREED]
    yield f"largest slack of what passed: {max(passed, default=0.0):.2g} of the spread"
    yield "slowest verifications of right builds:"
    slowest = sorted(right, key=lambda row: row.outcome.seconds, reverse=True)
    yield from (f"  {row}" for row in slowest[:10])
    yield from (str(row) for row in counted if not row.right)


def _read(path: Path) -> dict[Task, Row]:
    """The rows of an earlier run, nothing where there was none."""
    documents = json.loads(path.read_text()) if path.exists() else []
    rows = [Row.from_json(document) for document in documents]
    return {row.task: row for row in rows}


def _write(path: Path, rows: Sequence[Row]) -> None:
    unfinished = path.with_suffix(".partial")
    unfinished.write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    unfinished.replace(path)


def _share(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share such as 1/4")
    return int(part), int(parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--models", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, help="of right builds: 5; 2 with --quick")
    parser.add_argument(
        "--faults", type=int, help=f"in each model: {FAULTS_EACH} in thirty of them; 6 with --quick"
    )
    parser.add_argument(
        "--part", type=_share, default=(1, 1), metavar="K/N", help="take that share of the models"
    )
    parser.add_argument("--seconds", type=float, default=1800, help="time limit of one model")
    parser.add_argument("--json", type=Path, help="write the rows there, after each")
    parser.add_argument("--resume", action="store_true", help="take rows of --json from there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
