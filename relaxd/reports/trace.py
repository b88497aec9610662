"""A profiled run as trace events, which Perfetto and Chrome's `about:tracing` open."""

from typing import Any

from relaxd.contract.bundle.profile import KernelTime, Profile
from relaxd.contract.bundle.report import Report
from relaxd.contract.dims.dims import point_text
from relaxd.errors import BundleError

_PROCESS, _THREAD = 1, 1
_ARGUMENTS = ("family", "tile", "flops", "bytes", "gflops", "gb_s", "bound", "percent_of_peak")


def trace(report: Report, measured: str | None = None) -> dict[str, Any]:
    """A document of Chrome's trace event format: one complete event for each call of a kernel, in
    order, with its nodes, family and tile.

    measured: the digest of one of the report's profiles, the newest that was measured unless
    given. Raises BundleError for a report without such a profile.
    """
    profile = _profile(report, measured)
    if profile is None or profile.operators is None or not profile.operators.timeline:
        raise BundleError(
            "the report has no profile that tells when kernels ran",
            hint="build again with the option profile on, for a target that this machine runs",
        )
    point = point_text(profile.operators.dims) if profile.operators.dims else ""
    title = f"{report.name} for {report.target.name}{f' at {point}' if point else ''}"
    return {
        "traceEvents": [
            _named("process_name", title),
            _named("thread_name", "kernels"),
            *_events(profile),
        ],
        "displayTimeUnit": "ms",
        "otherData": {
            "digest": report.digest or "",
            "processor": profile.machine.processor or "",
            "measured_at": profile.measured_at or "",
        },
    }


def _profile(report: Report, digest: str | None) -> Profile | None:
    if digest is None:
        return report.profile
    profile = next((one for one in report.profiles if one.digest == digest), None)
    if profile is None:
        raise BundleError(f"the build has no profile {digest}")
    return profile


def _named(what: str, name: str) -> dict[str, Any]:
    about = {"name": what, "ph": "M", "pid": _PROCESS, "tid": _THREAD, "ts": 0}
    return {**about, "args": {"name": name}}


def _events(profile: Profile) -> list[dict[str, Any]]:
    assert profile.operators is not None
    rows = {row.name: row for row in profile.operators.rows}
    return [
        {
            "name": call.name,
            "cat": (rows[call.name].family or "machine") if call.name in rows else "kernel",
            "ph": "X",
            "ts": call.start_us,
            "dur": call.us,
            "pid": _PROCESS,
            "tid": _THREAD,
            "args": _arguments(rows.get(call.name)),
        }
        for call in profile.operators.timeline
    ]


def _arguments(row: KernelTime | None) -> dict[str, Any]:
    """The facts known about a kernel; counts are of one call."""
    if row is None:
        return {}
    known = {name: getattr(row, name) for name in _ARGUMENTS}
    for name in ("flops", "bytes"):
        if known[name] is not None and row.calls:
            known[name] = known[name] / row.calls
    arguments = {name: value for name, value in known.items() if value not in (None, "")}
    return {**arguments, **({"nodes": list(row.nodes)} if row.nodes else {})}
