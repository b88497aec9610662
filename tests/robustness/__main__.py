"""Holds the service's promises against faults and attacks: `python -m tests.robustness
[--row NAME] [--part K/N] [--scale 0.1] [--seed N] [--list] [--keep FOLDER [--resume]] [--record]`;
exit status 1 where one is broken or was skipped.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

# TVM imports torch wherever it is installed; a row that needs it starts a process.
sys.modules.setdefault("torch", None)

from tests.robustness.judge import Result, commit, judge  # noqa: E402
from tests.robustness.kept import read, write  # noqa: E402
from tests.robustness.page import PAGE, page  # noqa: E402
from tests.robustness.row import Row  # noqa: E402
from tests.robustness.rows import ROWS  # noqa: E402


def main(arguments: Sequence[str] | None = None, rows: Sequence[Row] = ROWS) -> int:
    """Run the rows that the arguments name, all unless they do; the exit status."""
    options = _parser(rows).parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.list:
        console.print(_listing(rows))
        return 0
    if options.record and (options.row or options.part != (1, 1)) and not options.keep:
        print(
            "--record needs every row, in this run or from earlier ones by --keep", file=sys.stderr
        )
        return 2
    if options.resume and (options.keep is None or options.seed is None):
        print("--resume needs the folder and the seed of the run: --keep, --seed", file=sys.stderr)
        return 2
    retained = {result.row.name: result for result in read(options.keep, rows)}
    seed = time.time_ns() % 10**9 if options.seed is None else options.seed
    first, parts = options.part
    chosen = [row for row in rows[first - 1 :: parts] if _wanted(row, options, retained)]
    console.print(f"scale {options.scale:g}, seed {seed}")
    results = [retained[row.name] for row in rows if _is_done(row, options, retained)]
    for row in chosen:
        console.print(f"{row.name} ({row.scale(options.scale)}) ...", highlight=False)
        results.append(judge(row, options.scale, seed))
        _tell(console, results[-1])
        if options.keep:
            write(options.keep, results[-1])
    retained |= {result.row.name: result for result in results}
    console.print(_table(results))
    if options.record:
        lacking = [row for row in rows if row.name not in retained]
        earlier = PAGE.read_text() if PAGE.exists() else ""
        PAGE.write_text(
            page([retained[row.name] for row in rows if row.name in retained], lacking, earlier)
        )
    return int(not all(result.is_met for result in results))


def _wanted(row: Row, options: argparse.Namespace, retained: Mapping[str, Result]) -> bool:
    """True if to run the row: one that is named, or any; to record, what was not kept is enough;
    to resume, what did not hold before.
    """
    if options.row and row.name not in options.row:
        return False
    if _is_done(row, options, retained):
        return False
    return bool(options.row) or not (options.record and row.name in retained)


def _is_done(row: Row, options: argparse.Namespace, retained: Mapping[str, Result]) -> bool:
    """True if a run that is resumed need not run the row: it held, on this commit with this seed
    and number of faults.
    """
    earlier = retained.get(row.name)
    if not options.resume or earlier is None or not earlier.is_met:
        return False
    now = (commit(), options.seed, row.scale(options.scale))
    return (earlier.commit, earlier.seed, earlier.count) == now


def _tell(console: Console, result: Result) -> None:
    text = f"{result.word}, {result.seconds:.0f} s: {_figures(result)} {result.skipped}"
    console.print(f"    {text}", highlight=False, markup=False)
    if not result.is_met:
        console.print(result.outcome.detail, highlight=False, markup=False)


def _table(results: Sequence[Result]) -> Table:
    table = Table("row", "faults", "promise", "", "figures", "seconds")
    for result in results:
        style = "green" if result.is_met else "bold red"
        table.add_row(
            result.row.name,
            str(result.count),
            result.row.promise,
            f"[{style}]{result.word}[/]",
            _figures(result),
            f"{result.seconds:.0f}",
        )
    return table


def _listing(rows: Sequence[Row]) -> Table:
    table = Table("row", "faults", "promise")
    for row in rows:
        table.add_row(row.name, str(row.full), row.promise)
    return table


def _figures(result: Result) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in result.outcome.counts.items())


def _part(text: str) -> tuple[int, int]:
    first, parts = map(int, text.split("/"))
    if not 1 <= first <= parts:
        raise ValueError
    return first, parts


def _parser(rows: Sequence[Row]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    names = [row.name for row in rows]
    parser.add_argument(
        "--row", action="append", choices=names, metavar="NAME", help="may be repeated"
    )
    parser.add_argument(
        "--part",
        type=_part,
        default=(1, 1),
        metavar="K/N",
        help="every Nth row alone, from the Kth on",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full counts")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--list", action="store_true", help="list the rows and run none")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep each row's result there, for --record"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="leave out what held before with this seed and scale on this commit, by --keep",
    )
    parser.add_argument("--record", action="store_true", help=f"write {PAGE.name}")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
