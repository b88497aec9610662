"""A report as HTML tables, for notebooks; every text of the model is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from relaxd.contract.dims.dims import point_text

if TYPE_CHECKING:
    from relaxd.contract.bundle.profile import KernelTime
    from relaxd.contract.bundle.report import Report

_MOST_KERNELS = 20


def report_html(report: Report) -> str:
    """The headline, the sentences, and tables of dims, latency, kernels and numerics."""
    parts = [
        f"<b>{escape(report.name)}</b> for {escape(report.target.name)} "
        f"{escape(report.target.status or '')}, {report.sizes.total / 2**20:.1f} MiB",
        "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in report.sentences) + "</ul>",
        _table(
            ("dim", "min", "max", "compared to", "measured to"),
            ((d.name, d.min, d.max, d.verified_up_to, d.measured_up_to) for d in report.dims),
        ),
    ]
    if (profile := report.profile) is not None:
        parts.append(
            _table(
                ("dims", "median ms", "p25", "p75", "reference ms"),
                (
                    (
                        point_text(p.dims),
                        p.median_ms,
                        p.p25_ms,
                        p.p75_ms,
                        p.reference.median_ms if p.reference else None,
                    )
                    for p in profile.points
                ),
            )
        )
        rows = profile.operators.rows if profile.operators else ()
        parts.append(
            _table(
                ("share", "kernel", "calls", "family", "FLOP", "bytes", "of peak", "nodes"),
                (
                    (
                        f"{r.share:.1%}",
                        r.name,
                        r.calls,
                        r.family,
                        r.flops,
                        r.bytes,
                        _of_peak(r),
                        ", ".join(r.nodes[:4]),
                    )
                    for r in rows[:_MOST_KERNELS]
                ),
            )
        )
    parts.append(
        _table(
            ("output", "verdict", "largest error"),
            ((o.name, o.verdict, o.max_abs) for o in report.numerics.outputs),
        )
    )
    parts.append(
        _table(
            ("output", "dims", "verdict", "error", "of what is allowed"),
            (
                (o.name, point_text(p.dims), p.verdict, p.max_abs, _part(p.of_tolerance))
                for o in report.numerics.outputs
                for p in o.points
            ),
        )
    )
    return f"<div>{''.join(parts)}</div>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    head = "".join(f"<th>{column}</th>" for column in columns)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    return f"<td>{value:.4g}</td>" if isinstance(value, float) else f"<td>{escape(str(value))}</td>"


def _of_peak(row: KernelTime) -> str | None:
    return None if row.percent_of_peak is None else f"{row.percent_of_peak:.0f} % ({row.bound})"


def _part(value: float | None) -> str | None:
    return None if value is None else f"{value:.2%}"
