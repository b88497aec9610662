"""The part of docs/performance/kernels.md that a run writes, between two marks."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.documents import FOLDER, Document, between, describe
from benchmarks.kernels import chart, document
from benchmarks.kernels.case import Arithmetic
from benchmarks.kernels.ceilings import Bandwidth, sizes_by_level
from benchmarks.kernels.roofline import Family, Rating, Spread, by_family
from compiler.targets.caches import Caches
from relaxd.timing import quiet

PAGE, FILE, CHART = FOLDER / "kernels.md", FOLDER / "kernels.json", FOLDER / "roofline.png"
MARK = "roofline"

_HEAD = (
    "| family | bound by | cases | GFLOP/s | of the peak | GB/s | FLOP/byte | of the attainable |",
    "|---|---|---:|---:|---:|---:|---:|---:|",
)
_CASES = (
    "| family | shape | ms | GFLOP/s | of the peak | GB/s | FLOP/byte | bound by "
    "| of the attainable |",
    "|---|---|---:|---:|---:|---:|---:|---|---:|",
)


def section(record: Document) -> str:
    """The machine and its ceilings, a line for each family and what bounds it, and the footnotes
    that the rows ask for.
    """
    cases = document.ratings(record)
    parts = [
        f"{describe(record['machine'])}, one thread, {record['date']}: {len(cases)} cases. "
        f"{_ceilings(record)}{_noise(cases)}",
        families(by_family(cases)),
        *_winograd(cases),
        *_without_peak(record, cases),
        f"[Every case]({FILE.name})",
    ]
    return "\n\n".join(parts)


def families(rows: Sequence[Family]) -> str:
    """The table: medians, with the least and the greatest case behind them."""
    return "\n".join([*_HEAD, *map(_family, rows)])


def _family(family: Family) -> str:
    gflops, intensity, gb_s = map(family.spread, ("gflops", "intensity", "gb_s"))
    computes = gflops.high > 0
    cells = [
        family.group,
        family.bound,
        str(len(family.cases)),
        _spread(gflops) if computes else "",
        _spread(family.share_of_peak, percent=True) if computes else "",
        _spread(gb_s),
        _spread(intensity) if computes else "",
        _spread(family.spread("share"), percent=True),
    ]
    return f"| {' | '.join(cells)} |"


def _spread(spread: Spread, percent: bool = False) -> str:
    middle, low, high = (
        f"{value:.0%}" if percent else _short(value)
        for value in (spread.middle, spread.low, spread.high)
    )
    return middle if low == high else f"{middle} ({low.removesuffix('%')}-{high})"


def _short(value: float) -> str:
    """Two digits below ten, whole numbers above."""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def case_lines(cases: Sequence[Rating]) -> list[str]:
    """A table of single cases, for the terminal."""
    return [*_CASES, *map(case_line, cases)]


def case_line(case: Rating) -> str:
    """One line of it."""
    computes = case.gflops > 0
    cells = [
        case.row["group"],
        case.row["shape"],
        f"{case.row['seconds'] * 1e3:.4f}",
        _short(case.gflops) if computes else "",
        f"{case.row['share_of_peak']:.0%}" if computes else "",
        _short(case.gb_s),
        _short(case.intensity) if computes else "",
        case.bound,
        f"{case.share:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def _ceilings(record: Document) -> str:
    bandwidth, caches = Bandwidth.from_json(record["bandwidth"]), Caches(**record["caches"])
    names = {Arithmetic.INT8: "8-bit integers"}
    peaks = (f"{rate:.0f} of {names.get(name, name)}" for name, rate in _peaks(record).items())
    rates = (
        f"{bandwidth.rate_at(size):.0f} from {name}"
        for name, size in sizes_by_level(caches).items()
    )
    return (
        f"Measured ceilings: {', '.join(peaks)} in GFLOP/s of multiply-adds, and "
        f"{', '.join(rates)} in GB/s of reads."
    )


def _peaks(record: Document) -> dict[Arithmetic, float]:
    return {one: record["peaks"][one] for one in Arithmetic if one in record["peaks"]}


def _noise(cases: Sequence[Rating]) -> str:
    noisy = sum(case.row["others"] > quiet.MOST for case in cases)
    return f" In {noisy} of them others used the processors as well." if noisy else ""


def _winograd(cases: Sequence[Rating]) -> list[str]:
    """How Winograd's convolutions compare with the direct form, whose operations are not theirs."""
    members = [case for case in cases if case.row["executed"] < case.row["definition"]]
    if not members:
        return []
    rates = Spread.of([one.row["definition"] / one.row["seconds"] / 1e9 for one in members])
    return [
        "Winograd's row counts the multiplications that its form takes, a quarter of the direct "
        "form's where tiles of 4x4 cover the image, and neither its transforms nor what they move. "
        f"In operations of the direct form it computes {_spread(rates)} GFLOP/s."
    ]


def _without_peak(record: Document, cases: Sequence[Rating]) -> list[str]:
    """Which families are held against float32, as the processor cannot multiply what they do."""
    groups = {case.row["group"] for case in cases}
    missing = set(Arithmetic) - _peaks(record).keys()
    names = sorted(group for group in groups if any(group.endswith(one) for one in missing))
    if not names:
        return []
    return [
        f"Shares of {' and '.join(f'`{name}`' for name in names)} are of the peak of float32: this "
        "processor has no instruction that multiplies and adds what they multiply."
    ]


def regenerate(record: Document) -> None:
    """Write the page's section and the chart."""
    PAGE.write_text(between(PAGE.read_text(), MARK, section(record)))
    chart.draw(
        document.ratings(record),
        _peaks(record),
        Bandwidth.from_json(record["bandwidth"]),
        sizes_by_level(Caches(**record["caches"])),
        CHART,
    )
