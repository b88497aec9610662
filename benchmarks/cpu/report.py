"""What a run found, as text, Markdown and a chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
"""`label`, and `engines`: each engine's outcome."""

PEERS = ("onnxruntime", "openvino")
"""The ratio is ours over the best of these."""


def ratio(row: Row) -> float | None:
    """Our median over the best peer's; below 1 we are faster. None where either is missing."""
    times = {
        engine: outcome["milliseconds"]
        for engine, outcome in row["engines"].items()
        if "milliseconds" in outcome
    }
    peers = [times[peer] for peer in PEERS if peer in times]
    return times["relaxd"] / min(peers) if peers and "relaxd" in times else None


def geometric_mean(rows: Sequence[Row]) -> float | None:
    """Of the ratios there are."""
    found = [value for row in rows if (value := ratio(row)) is not None]
    return math.exp(sum(map(math.log, found)) / len(found)) if found else None


def line(row: Row) -> str:
    """One row for the terminal."""
    cells = (f"{engine} {_cell(outcome)}" for engine, outcome in row["engines"].items())
    return f"{row['label']:34} {_ratio(ratio(row))}  {speed(row):32} " + "  ".join(cells)


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
    """The table: milliseconds with quartiles, activation memory in MB, and the ratio to the best
    peer.
    """
    lines = [
        "| | " + " | ".join(engines) + " | ratio | relaxd, of the peak |",
        "|---|" + "---:|" * (len(engines) + 2),
    ]
    for row in rows:
        cells = " | ".join(
            _cell(row["engines"].get(engine, {"error": "not run"})) for engine in engines
        )
        lines.append(f"| {row['label']} | {cells} | {_ratio(ratio(row))} | {speed(row)} |")
    lines.append(
        f"| geometric mean | {' | '.join('' for _ in engines)} | {_ratio(geometric_mean(rows))} | |"
    )
    return "\n".join(lines) + "\n"


def chart(rows: Sequence[Row], engines: Sequence[str], file: Path) -> None:
    """Horizontal bars, one group a row: time relative to the best peer's; shorter is faster."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(rows) + 1.5))
    height = 0.8 / len(engines)
    for index, engine in enumerate(engines):
        bars = [_relative(row, engine) for row in rows]
        axes.barh(
            [place + index * height for place in range(len(rows))], bars, height, label=engine
        )
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(
        [place + 0.4 - height / 2 for place in range(len(rows))], [row["label"] for row in rows]
    )
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_xlim(0, 3)
    axes.set_xlabel("time / best of ONNX Runtime and OpenVINO (shorter is faster; cut at 3)")
    figure.legend(loc="upper center", ncols=len(engines))
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.4 / figure.get_figheight()))
    figure.savefig(file, dpi=120)


def _relative(row: Row, engine: str) -> float:
    times = {
        name: outcome.get("milliseconds", math.nan) for name, outcome in row["engines"].items()
    }
    best = min((times[peer] for peer in PEERS if peer in times), default=math.nan)
    return float(times.get(engine, math.nan) / best)


def _cell(outcome: Mapping[str, Any]) -> str:
    if "milliseconds" not in outcome:
        return (
            "no model"
            if str(outcome.get("error", "")).startswith(LookupError.__name__)
            else "fails"
        )
    spread = f"{outcome['milliseconds']:.2f} ms ({outcome['low']:.2f}-{outcome['high']:.2f})"
    memory = f", {outcome['memory_bytes'] / 1e6:.3g} MB" if "memory_bytes" in outcome else ""
    return spread + memory + ("" if _right(outcome) else ", WRONG")


def _right(outcome: Mapping[str, Any]) -> bool:
    from benchmarks.cpu.contest import TOLERANCE

    return outcome["difference"] is None or outcome["difference"] <= TOLERANCE


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
