"""Runs torch's own samples of its operators through the importer and the compiler: `python -m
tests.opinfo --way traced --mode static --json rows.jsonl --resume`.
"""

import argparse
import gc
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conformance import workers
from tests.conformance.modes import Mode
from tests.conformance.outcomes import Outcome, Result
from tests.opinfo.engines import WAYS, Case
from tests.opinfo.entries import entries

ENGINES = ("relaxd", "import_only")
_BROKEN = (Outcome.WRONG, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a row is wrong, failed without a type, crashed or ran out of time."""
    options = _parser().parse_args(arguments)
    done = _stored(options.json) if options.resume else []
    if options.json and not options.resume:
        options.json.write_text("")
    rows = list(done)
    # Workers are forked: what they share is not for their collector to walk.
    gc.collect()
    gc.freeze()
    for mode in [Mode(options.mode)] if options.mode else list(Mode):
        known = {row["name"] for row in done if row["mode"] == mode.value}
        cases = [case for case in _cases(options) if case.name not in known]
        plan = workers.Plan(
            f"tests.opinfo.engines:{options.engine}", mode, options.seconds, options.workers
        )
        for result in workers.run(cases, plan):
            rows.append(_row(result, mode))
            _report(rows[-1], options)
    print("\n".join(totals(rows)))
    return int(any(Outcome(row["outcome"]) in _BROKEN for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.opinfo", description=__doc__)
    parser.add_argument("--way", choices=WAYS, action="append", help="all of them unless said")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], help="both unless said")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--ops", default="", metavar="NAME", help="a regular expression of entries")
    parser.add_argument("--sample", type=int, help="that many entries, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="append each row there, one a line")
    parser.add_argument("--resume", action="store_true", help="leave out the rows of that file")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of a row")
    return parser


def _cases(options: argparse.Namespace) -> list[Case]:
    """An entry's ways stand together: they share what is built for it."""
    chosen = [entry for entry in entries() if re.search(options.ops, str(entry))]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    return [Case(entry, way) for entry in chosen for way in options.way or WAYS]


def _stored(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _row(result: Result, mode: Mode) -> dict[str, Any]:
    document = result.to_json()
    return {
        "name": result.name,
        "way": document["suite"],
        "mode": mode.value,
        **{key: document[key] for key in ("outcome", "why", "seconds")},
    }


def _report(row: dict[str, Any], options: argparse.Namespace) -> None:
    if row["outcome"] not in ("ok", "excluded"):
        print(f"{row['outcome']}: {row['name']} {row['mode']}: {row['why']}", flush=True)
    if options.json:
        with options.json.open("a") as file:
            file.write(json.dumps(row) + "\n")


def totals(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each way and mode: how many rows of those that torch itself has are right."""
    lines = []
    for mode in Mode:
        for way in WAYS:
            mine = [row for row in rows if (row["way"], row["mode"]) == (way, mode.value)]
            counts = Counter(row["outcome"] for row in mine)
            served = len(mine) - counts.pop("excluded", 0)
            if served:
                words = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
                lines.append(
                    f"{way}, {mode.value}: {counts['ok'] / served:.1%} of {served}: {words}"
                )
    return lines


if __name__ == "__main__":
    sys.exit(main())
