"""Draws a run: for every row each engine's time as a multiple of the best peer's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cpu.report import Row, Verdict, best_peer, ratio, verdict

_COLOURS = {
    Verdict.AHEAD: "#1a7f37",
    Verdict.EVEN: "#57606a",
    Verdict.BEHIND: "#cf222e",
    Verdict.NOISY: "#bf8700",
}
_MARKS = {"onnxruntime": "D", "openvino": "x", "torch.compile": "^", "iree": "s"}
_PEER: dict[str, Any] = {
    "color": "#0969da",
    "markersize": 3.5,
    "markerfacecolor": "none",
    "linestyle": "",
}
_LEAST, _MOST = 0.15, 4.0


def draw(rows: Sequence[Row], engines: Sequence[str], file: Path) -> None:
    """Draw a line for each row, on a logarithmic axis, relaxd's with its interval; times of less
    than _LEAST or more than _MOST of the best peer's are drawn on the edge.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.19 * len(rows) + 1.4))
    for index, row in enumerate(rows):
        _draw_row(axes, index, row, engines)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xlim(_LEAST, _MOST * 1.05)
    ticks = (0.15, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
    axes.tick_params(labeltop=True, top=True)
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="x", linewidth=0.4, color="#d0d7de")
    for index in range(0, len(rows), 2):
        axes.axhspan(index - 0.5, index + 0.5, color="#f6f8fa", zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlabel("time / best of ONNX Runtime and OpenVINO (further left is faster)", fontsize=8)
    _legend(figure, engines)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / figure.get_figheight()))
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _draw_row(axes: Any, index: int, row: Row, engines: Sequence[str]) -> None:
    times = {
        engine: outcome["rounds"]
        for engine, outcome in row["engines"].items()
        if "rounds" in outcome
    }
    peer = best_peer(times)
    if peer is None:
        return
    best = statistics.median(times[peer])
    for engine in engines:
        if engine in times and engine != "relaxd":
            multiple = _cut(statistics.median(times[engine]) / best)
            axes.plot(multiple, index, _MARKS.get(engine, "d"), **_PEER)
    interval, judged = ratio(row), verdict(row)
    if interval and judged:
        ends = [[_cut(interval.low), _cut(interval.high)], [index, index]]
        axes.plot(*ends, color=_COLOURS[judged], linewidth=1.6, solid_capstyle="butt")
        axes.plot(_cut(interval.middle), index, "o", color=_COLOURS[judged], markersize=4.5)


def _cut(value: float) -> float:
    """Clamp to the axis."""
    return min(max(value, _LEAST), _MOST)


def _legend(figure: Any, engines: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    ours: dict[str, Any] = {"marker": "o", "markersize": 4.5, "linestyle": ""}
    handles = [
        Line2D([], [], color=colour, label=f"relaxd, {one}", **ours)
        for one, colour in _COLOURS.items()
    ]
    handles += [
        Line2D([], [], marker=_MARKS.get(engine, "d"), label=engine, **_PEER)
        for engine in engines
        if engine != "relaxd"
    ]
    figure.legend(handles=handles, loc="upper center", ncols=4, fontsize=7, frameon=False)
