"""The results of a run as text and Markdown."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from relaxd.timing import intervals, quiet
from relaxd.timing.contestants import TOLERANCE
from relaxd.timing.intervals import Interval

Row = Mapping[str, Any]
"""`label`, `model`, `others` (their share of the processors in each round), and `engines`: each
engine's outcome.
"""

PEERS = ("onnxruntime", "openvino")
"""The ratio is ours over the best of these."""


class Verdict(StrEnum):
    """The conclusion of a row: relaxd takes less time, more, or the rounds do not tell; NOISY where
    other processes used the machine, so that nothing is concluded.
    """

    AHEAD = "ahead"
    EVEN = "even"
    BEHIND = "behind"
    NOISY = "noisy"


def best_peer(rounds: Mapping[str, Sequence[float]]) -> str | None:
    """The one of PEERS whose median over all rounds is the least; None where none ran."""
    ran = [peer for peer in PEERS if rounds.get(peer)]
    return min(ran, key=lambda peer: statistics.median(rounds[peer]), default=None)


def ratios(row: Row) -> list[float]:
    """Ours over the best peer's time in each round; none where either is missing."""
    times = {
        engine: outcome["rounds"]
        for engine, outcome in row["engines"].items()
        if "rounds" in outcome
    }
    peer = best_peer(times)
    return intervals.pair_ratios(times["relaxd"], times[peer]) if peer and "relaxd" in times else []


def ratio(row: Row) -> Interval | None:
    """The median of the rounds' ratios, below 1 where we are faster."""
    values = ratios(row)
    return intervals.median_interval(values) if values else None


def is_quiet(row: Row) -> bool:
    """True if others did not use the machine in any round."""
    return max(row["others"], default=0.0) <= quiet.MOST


def verdict(row: Row) -> Verdict | None:
    """None where there is no ratio."""
    interval = ratio(row)
    return conclude(interval, is_quiet(row)) if interval else None


def conclude(interval: Interval, quiet: bool) -> Verdict:
    """The verdict of an interval; `quiet`: True if no other processes used the machine."""
    if not quiet:
        return Verdict.NOISY
    if interval.high < 1.0:
        return Verdict.AHEAD
    return Verdict.BEHIND if interval.low > 1.0 else Verdict.EVEN


def geometric_mean(rows: Sequence[Row]) -> Interval | None:
    """The geometric mean of the ratios of quiet rows."""
    return intervals.geometric_mean(
        [values for row in rows if is_quiet(row) and (values := ratios(row))]
    )


def summary(rows: Sequence[Row]) -> str:
    """The geometric mean, and how many rows are ahead, even and behind; what noise left out."""
    counts = Counter(verdict(row) for row in rows)
    mean = geometric_mean(rows)
    counted = [f"{counts[one]} {one}" for one in (Verdict.AHEAD, Verdict.EVEN, Verdict.BEHIND)]
    text = f"geometric mean of the ratios {mean or 'none'}; {', '.join(counted)}"
    if counts[Verdict.NOISY]:
        text += (
            f"; {counts[Verdict.NOISY]} noisy, of which nothing is concluded: others used more than"
            f" {quiet.MOST:.0%} of the processors"
        )
    return text + (f"; {counts[None]} without a ratio" if counts[None] else "")


def line(row: Row) -> str:
    """One row for the terminal."""
    cells = (f"{engine} {cell(outcome)}" for engine, outcome in row["engines"].items())
    judged = f"{ratio(row) or ''!s:18} {verdict(row) or '':6}"
    return f"{row['label']:34} {judged}  {speed(row):32} " + "  ".join(cells)


def speed(row: Row) -> str:
    """relaxd's GFLOP/s of all matmuls and convolutions over the whole call and, where matmuls
    dominate, in their kernels.

    Also as a share of the peak: of its best, and for matmuls of its median, measured in turns with
    them. Winograd's convolutions do less than is counted, so theirs may exceed the peak.
    """
    ours, peak, work = row["engines"].get("relaxd", {}), row["peak_gflops"], row["work"]
    if "milliseconds" not in ours:
        return ""
    speeds = [("", work["products"] / ours["milliseconds"] / 1e6, peak)]
    if 2 * work["matmuls"] > work["products"] and ours.get("matmul_milliseconds"):
        speeds.append(
            (
                " in matmuls",
                work["matmuls"] / ours["matmul_milliseconds"] / 1e6,
                ours["matmul_peak_gflops"],
            )
        )
    return ", ".join(
        f"{rate:.0f} GFLOP/s{suffix} ({rate / peak:.0%})" for suffix, rate, peak in speeds
    )


def markdown(rows: Sequence[Row], engines: Sequence[str]) -> str:
    """The table: milliseconds with quartiles of the rounds, activation memory in MB, the ratio to
    the best peer with its interval, and what follows from that.
    """
    lines = [
        "| | " + " | ".join(engines) + " | ratio | verdict | relaxd, of the peak |",
        "|---|" + "---:|" * (len(engines) + 1) + "---|---:|",
    ]
    for row in rows:
        cells = [cell(row["engines"].get(engine, {"error": "not run"})) for engine in engines]
        judged = [str(ratio(row) or ""), str(verdict(row) or ""), speed(row)]
        lines.append(f"| {' | '.join([row['label'], *cells, *judged])} |")
    empty = "| " * len(engines)
    lines.append(f"| geometric mean {empty}| {geometric_mean(rows) or ''} | | |")
    return "\n".join(lines) + "\n"


def cell(outcome: Mapping[str, Any]) -> str:
    """An engine's time and memory, or that it has none."""
    if "milliseconds" not in outcome:
        lookup = str(outcome.get("error", "")).startswith(LookupError.__name__)
        return "no model" if lookup else "fails"
    spread = f"{outcome['milliseconds']:.2f} ms ({outcome['low']:.2f}-{outcome['high']:.2f})"
    memory = f", {outcome['memory_bytes'] / 1e6:.3g} MB" if "memory_bytes" in outcome else ""
    return spread + memory + ("" if right(outcome) else ", WRONG")


def errors(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(engine, error) of engines that failed, each once; not of those that have no such model."""
    failures = (
        (engine, str(outcome["error"]))
        for row in rows
        for engine, outcome in row["engines"].items()
        if "error" in outcome and cell(outcome) == "fails"
    )
    return list(dict.fromkeys(failures))


def right(outcome: Mapping[str, Any]) -> bool:
    """True if an engine's outputs are within the tolerance of ONNX Runtime's, or there are none."""
    return outcome["difference"] is None or outcome["difference"] <= TOLERANCE
