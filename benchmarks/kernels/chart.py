"""Draws a run: the roofline with every case under it, and beside it the share of the attainable
that each family's cases reach.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.kernels.case import Arithmetic
from benchmarks.kernels.ceilings import ARITHMETIC, MEMORY, Bandwidth, Level
from benchmarks.kernels.roofline import Rating

_STYLES = (
    ("#0969da", "o"), ("#cf222e", "s"), ("#1a7f37", "^"), ("#8250df", "D"), ("#bf8700", "v"),
    ("#0a3069", "P"), ("#e16f24", "X"), ("#57606a", "<"), ("#bf3989", ">"), ("#116329", "p"),
    ("#7d4e00", "h"), ("#24292f", "d"), ("#0550ae", "*"), ("#ff8182", "8"), ("#a475f9", "H"),
)  # fmt: skip
"""Colours and marks, one pair for each family."""
_BOUNDS = {
    ARITHMETIC: "#24292f", "L1": "#54aeff", "L2": "#0969da", "L3": "#8250df", MEMORY: "#cf222e",
}  # fmt: skip
_NAMES = {
    Arithmetic.FLOAT32: "peak of float32 multiply-adds",
    Arithmetic.BFLOAT16: "peak of bfloat16 dot products",
    Arithmetic.INT8: "peak of 8-bit integers",
}
_LEAST, _MOST = 0.08, 2500.0
"""Ends of the axis of FLOP per byte."""


def draw(
    cases: Sequence[Rating],
    peaks: Mapping[Arithmetic, float],
    bandwidth: Bandwidth,
    sizes: Mapping[Level, int],
    file: Path,
) -> None:
    """Both parts; cases that compute nothing, such as copies, are only in the second."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = list(dict.fromkeys(case.row["group"] for case in cases))
    styles = {group: _STYLES[index % len(_STYLES)] for index, group in enumerate(groups)}
    figure, (roof, shares) = pyplot.subplots(
        1, 2, figsize=(14, 6.6), gridspec_kw={"width_ratios": (1.9, 1)}
    )
    rates = {name: bandwidth.rate_at(size) for name, size in sizes.items()}
    _ceilings(roof, peaks, rates)
    _points(roof, cases, styles)
    _shares(shares, cases, groups)
    figure.tight_layout()
    # Their angle is known once the axes have their size.
    _name_slopes(roof, rates)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _ceilings(axes: Any, peaks: Mapping[Arithmetic, float], rates: Mapping[Level, float]) -> None:
    """Slopes of bandwidth up to the highest peak, and a level line for each arithmetic."""
    top = max(peaks.values())
    for name, rate in rates.items():
        axes.plot([_LEAST, top / rate], [_LEAST * rate, top], color=_BOUNDS[name], linewidth=1.2)
    for name, peak in peaks.items():
        first = peak / max(rates.values())
        style = "-" if name is Arithmetic.FLOAT32 else "--"
        axes.plot([first, _MOST], [peak, peak], color=_BOUNDS[ARITHMETIC], ls=style, linewidth=1.2)
        text = f"{_NAMES[name]}: {peak:.0f} GFLOP/s"
        # Right of all kernels: few reuse a number more than some hundred times.
        axes.text(_MOST * 0.95, peak * 1.03, text, ha="right", va="bottom", fontsize=8)
    axes.set(xscale="log", yscale="log", xlim=(_LEAST, _MOST), ylim=(1, top * 1.6))
    ticks = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    heights = (1, 3, 10, 30, 100, 300)
    axes.set_yticks(heights, [f"{tick:g}" for tick in heights])
    axes.minorticks_off()
    axes.grid(linewidth=0.4, color="#d0d7de")
    axes.set_xlabel("arithmetic intensity: operations for each byte that has to move (FLOP/byte)")
    axes.set_ylabel("GFLOP/s of one thread")
    axes.set_title(
        "Roofline: no kernel can be above the line of its instruction,\n"
        "nor above the slope of the cache or memory that holds its operands",
        fontsize=10,
    )


def _name_slopes(axes: Any, rates: Mapping[Level, float]) -> None:
    """Along each slope; every second name stands below, as two caches may lie close together."""
    for index, (name, rate) in enumerate(rates.items()):
        below = index % 2 == 0 and index > 0
        axes.annotate(
            f"reads from {name}: {rate:.0f} GB/s",
            (0.1, 0.1 * rate),
            fontsize=8,
            color=_BOUNDS[name],
            xytext=(3, -3) if below else (0, 3),
            textcoords="offset points",
            va="top" if below else "bottom",
            rotation=_angle(axes),
            rotation_mode="anchor",
        )


def _angle(axes: Any) -> float:
    """Degrees at which a slope of one rises on the drawn axes."""
    box = axes.get_window_extent()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    rise = box.height / math.log(high / low)
    return math.degrees(math.atan2(rise, box.width / math.log(right / left)))


def _points(axes: Any, cases: Sequence[Rating], styles: Mapping[str, tuple[str, str]]) -> None:
    for group, (colour, mark) in styles.items():
        members = [case for case in cases if case.row["group"] == group and case.gflops > 0]
        if members:
            axes.plot(
                [case.intensity for case in members],
                [case.gflops for case in members],
                mark,
                color=colour,
                markersize=6,
                alpha=0.75,
                markeredgecolor="white",
                markeredgewidth=0.5,
                label=group,
            )
    axes.legend(fontsize=8, loc="lower right", ncols=2, framealpha=0.9)


def _shares(axes: Any, cases: Sequence[Rating], groups: Sequence[str]) -> None:
    """A line for each family, a dot for each case in the colour of what bounds it."""
    for name, colour in _BOUNDS.items():
        members = [case for case in cases if case.bound == name]
        if members:
            axes.plot(
                [case.share for case in members],
                [groups.index(case.row["group"]) for case in members],
                "o",
                color=colour,
                alpha=0.6,
                markersize=6,
                label=f"bound by {name}",
            )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlim(0, max(1.05, *(case.share for case in cases)) * 1.02)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_yticks(range(len(groups)), groups)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(axis="x", linewidth=0.4, color="#d0d7de")
    axes.set_xlabel("share of what its ceilings allow (further right is better)")
    axes.set_title("How near each case comes to its bound", fontsize=10)
    axes.legend(
        fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=5, frameon=False,
        columnspacing=1, handletextpad=0.2,
    )  # fmt: skip
