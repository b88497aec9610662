"""Throughput of threads that call one loaded library at once, beside ONNX Runtime's one session
called by as many.

A call computes on one thread in both: relaxd's loader then lets as many calls run at once as there
are threads that call, each in scratch memory of its own, and those of a team wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.cpu import contest, report
from benchmarks.cpu.rows import ROWS, label
from relaxd.timing import rounds
from relaxd.timing.contestants import Contestant, start_workers, times_of

MODELS = ("minilm", "resnet50", "ppocr_rec", "silero_vad_16k_op15", "mobilenet_v2")
"""Those measured where none is named, each at the first of its points."""
ENGINES = ("relaxd", "onnxruntime")


def measure(name: str, numbers: Sequence[int], plan: contest.Plan) -> Iterator[dict[str, Any]]:
    """A row for each number of callers: every engine's milliseconds of wall time for each call."""
    point = ROWS[name][0]
    with TemporaryDirectory(prefix="callers-") as path:
        folder = Path(path)
        contest.prepare(name, [point], plan.threads, folder)
        with start_workers(plan.engines, folder, contest.WORKER) as contestants:
            for number in numbers:
                row = {"label": label(name, point), "model": name, "callers": number}
                yield row | _row(contestants, number, plan)


def _row(contestants: Sequence[Contestant], number: int, plan: contest.Plan) -> dict[str, Any]:
    racing = [one for one in contestants if "error" not in one.ready]
    request = {"point": 0, "callers": number, "seconds": plan.seconds}
    done = rounds.in_turns(racing, request, plan.rounds)
    engines = {one.engine: dict(one.ready) for one in contestants}
    for one in racing:
        engines[one.engine] |= times_of(one.engine, done)
    return {"engines": engines, "others": [round(one.others, 4) for one in done]}


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Calls a second, and the ratio of times, below 1 where relaxd answers more calls."""
    engines = list(rows[0]["engines"])
    lines = [
        "| | callers | " + " | ".join(f"{engine}, calls/s" for engine in engines)
        + " | ratio | verdict |",
        "|---|---:|" + "---:|" * (len(engines) + 1) + "---|",
    ]  # fmt: skip
    for row in rows:
        rates = [_rate(row["engines"][engine]) for engine in engines]
        cells = [row["label"], str(row["callers"]), *rates]
        judged = [str(report.ratio(row) or ""), str(report.verdict(row) or "")]
        lines.append(f"| {' | '.join([*cells, *judged])} |")
    return "\n".join(lines) + "\n"


def line(row: Mapping[str, Any]) -> str:
    """One row for the terminal."""
    rates = (f"{engine} {_rate(outcome)}" for engine, outcome in row["engines"].items())
    judged = f"{report.ratio(row) or ''} {report.verdict(row) or ''}"
    return f"{row['label']:34} {row['callers']} callers  {judged}  calls/s: {', '.join(rates)}"


def _rate(outcome: Mapping[str, Any]) -> str:
    return f"{1e3 / outcome['milliseconds']:.1f}" if "milliseconds" in outcome else "fails"
