"""Real ONNX models beside ONNX Runtime: `python -m tests.zoo --cases vit bert --exporter dynamo
--json zoo.json --markdown zoo.md`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from relaxd.contract.options import Flavour
from tests.zoo.case import Case, Exporter, Sizes
from tests.zoo.cases import CASES
from tests.zoo.exporting import ROOT
from tests.zoo.measure import Measured, Outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 where a case that was not skipped is not within the tolerance at every
    point.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.resume and not options.json:
        parser.error("--resume needs --json FILE")
    retained = _read_kept(options.json) if options.resume else {}
    results: list[Measured] = []
    for case in CASES.values():
        if case.name in options.cases and case.exporter.value in options.exporter:
            built = case.build(options.flavour, options.target)
            results.append(retained.get(case.key) or measure(built, options.seconds))
            print(*_cells(results[-1]), sep="  ", flush=True)
            retained[case.key] = results[-1]
            if options.json:
                _write(options.json, list(retained.values()))
    if options.markdown:
        options.markdown.write_text("\n".join(table(results)) + "\n")
    return _verdict(results)


def _read_kept(path: Path) -> dict[str, Measured]:
    """Read an earlier run's cases within the tolerance, by key; nothing where there was none."""
    outcome = json.loads(path.read_text()) if path.exists() else []
    results = [Measured.from_json(document) for document in outcome]
    return {result.key: result for result in results if result.outcome is Outcome.OK}


def _write(path: Path, results: Sequence[Measured]) -> None:
    unfinished = path.with_suffix(".partial")
    unfinished.write_text(json.dumps([result.to_json() for result in results], indent=1) + "\n")
    unfinished.replace(path)


def _verdict(results: Sequence[Measured]) -> int:
    stored, skipped = (
        sum(result.outcome is outcome for result in results)
        for outcome in (Outcome.OK, Outcome.SKIPPED)
    )
    print(f"{stored} of {len(results) - skipped} within the tolerance, {skipped} skipped")
    return int(stored + skipped < len(results))


def measure(case: Case, seconds: float) -> Measured:
    """The case in a process of its own, which may crash, and is killed with its children after
    `seconds`.
    """
    command = [sys.executable, "-m", "tests.zoo.measure", case.key, case.target, *_flavour(case)]
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, message = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return Measured(
            case.name,
            case.exporter.value,
            Outcome.TIMEOUT,
            seconds,
            error=f"no result after {seconds:.0f} s",
        )
    if child.returncode:
        last = (message.strip().splitlines() or [""])[-1][:300]
        return Measured(
            case.name,
            case.exporter.value,
            Outcome.CRASH,
            error=f"exit status {child.returncode}: {last}",
        )
    return Measured.from_json(json.loads(output.strip().splitlines()[-1]))


def _flavour(case: Case) -> tuple[str, ...]:
    return (case.options["flavour"],) if "flavour" in case.options else ()


def table(results: Sequence[Measured]) -> Iterator[str]:
    """A row for each case: seconds to compile, the worst difference, and the sizes it is at."""
    yield "| model | exporter | compiled in | worst difference | at |"
    yield "|---|---|---|---|---|"
    for result in results:
        yield f"| {' | '.join(_cells(result))} |"


def _cells(result: Measured) -> tuple[str, ...]:
    begin = (result.name, result.exporter, f"{result.compile_seconds:.0f} s")
    if not result.worst:
        return (*begin, f"**{result.outcome.value}** {result.error}", "")
    worst, index = max(zip(result.worst, map(_report, result.points), strict=True))
    failed = "" if result.outcome is Outcome.OK else f"**{result.outcome.value}** {result.error} "
    unproven = f"; nothing is proven of {', '.join(result.unproven)}" if result.unproven else ""
    return (*begin, f"{failed}{worst:.1e}", index + unproven)


def _report(point: Sizes) -> str:
    return ", ".join(f"{name} {value}" for name, value in point.items())


def _parser() -> argparse.ArgumentParser:
    names = list(dict.fromkeys(case.name for case in CASES.values()))
    exporters = [exporter.value for exporter in Exporter]
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument(
        "--cases", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument(
        "--exporter",
        nargs="+",
        choices=exporters,
        default=exporters,
        metavar="EXPORTER",
        help=", ".join(exporters),
    )
    parser.add_argument("--flavour", choices=list(Flavour), help="of the libraries")
    parser.add_argument(
        "--target",
        default="native",
        help="such as x86-64-v3, which this machine has to run; or a geometry, such as 512/32: "
        "kernels for that processor's vectors, with this machine's instructions",
    )
    parser.add_argument("--seconds", type=float, default=600, help="time limit of one case")
    parser.add_argument(
        "--json", type=Path, help="write the results there, those so far after each case"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="take the cases that hold in the file of --json from there",
    )
    parser.add_argument("--markdown", type=Path, help="write the table there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
