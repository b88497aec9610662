"""What a run found, as text and Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.cpu import intervals, quiet
from benchmarks.cpu.contest import TOLERANCE
from benchmarks.cpu.intervals import Interval, Verdict

Row = Mapping[str, Any]
"""`label`, `model`, `others` (their share of the processors in each round), and `engines`: each
engine's outcome.
"""

PEERS = ("onnxruntime", "openvino")
"""The ratio is ours over the best of these."""


def ratios(row: Row) -> list[float]:
    """Ours over the best peer's time in each round; none where either is missing."""
    times = {
        engine: outcome["rounds"]
        for engine, outcome in row["engines"].items()
        if "rounds" in outcome
    }
    peer = intervals.best_peer(times, PEERS)
    return intervals.paired(times["relaxd"], times[peer]) if peer and "relaxd" in times else []


def ratio(row: Row) -> Interval | None:
    """The median of the rounds' ratios, below 1 where we are faster."""
    found = ratios(row)
    return intervals.median_interval(found) if found else None


def is_quiet(row: Row) -> bool:
    """Whether others left the machine alone in every round."""
    return max(row["others"], default=0.0) <= quiet.MOST


def verdict(row: Row) -> Verdict | None:
    """None where there is no ratio."""
    found = ratio(row)
    return intervals.verdict(found, is_quiet(row)) if found else None


def geometric_mean(rows: Sequence[Row]) -> Interval | None:
    """Of the ratios of quiet rows."""
    return intervals.geometric_mean(
        [found for row in rows if is_quiet(row) and (found := ratios(row))]
    )


def summary(rows: Sequence[Row]) -> str:
    """The geometric mean, and how many rows are ahead, even and behind; what noise left out."""
    counts = Counter(verdict(row) for row in rows)
    mean = geometric_mean(rows)
    said = [f"{counts[one]} {one}" for one in (Verdict.AHEAD, Verdict.EVEN, Verdict.BEHIND)]
    text = f"geometric mean of the ratios {mean or 'none'}; {', '.join(said)}"
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
    """What relaxd computes a second, of all products over the whole call, and where matrix products
    dominate of those in their kernels.

    In GFLOP/s and as a share of the peak: of its best, and for the matrix products of its median,
    in turns with theirs. Winograd's convolutions do less than is counted, so theirs may pass the
    peak.
    """
    ours, peak, work = row["engines"].get("relaxd", {}), row["peak_gflops"], row["work"]
    if "milliseconds" not in ours:
        return ""
    found = [("", work["products"] / ours["milliseconds"] / 1e6, peak)]
    if 2 * work["matmuls"] > work["products"] and ours.get("matmul_milliseconds"):
        found.append(
            (
                " in matmuls",
                work["matmuls"] / ours["matmul_milliseconds"] / 1e6,
                ours["matmul_peak_gflops"],
            )
        )
    return ", ".join(
        f"{rate:.0f} GFLOP/s{where} ({rate / peak:.0%})" for where, rate, peak in found
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
    """(engine, what it said) of engines that failed, each once; not of those that have no such
    model.
    """
    found = (
        (engine, str(outcome["error"]))
        for row in rows
        for engine, outcome in row["engines"].items()
        if "error" in outcome and cell(outcome) == "fails"
    )
    return list(dict.fromkeys(found))


def right(outcome: Mapping[str, Any]) -> bool:
    """Whether an engine's outputs are ONNX Runtime's within the tolerance, or there was none to
    compare with.
    """
    return outcome["difference"] is None or outcome["difference"] <= TOLERANCE
