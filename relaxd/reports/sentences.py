"""Explains in at most three sentences why a build is slow, and what would help."""

from collections.abc import Iterator, Sequence

from relaxd.contract.bundle.numerics import AGREED, Verdict
from relaxd.contract.bundle.profile import KernelTime, Profile
from relaxd.contract.bundle.report import DimReport, NumericsReport
from relaxd.contract.dims.names import option_name, quote_name

MOST = 3
_MUCH = 0.2
_BEHIND = 1.05
_MACHINE = "vm."
_UNLIKE = {
    Verdict.REFERENCE_INEXACT: "Outputs depart from the reference, and float64 shows that the "
    "reference is the inexact one.",
    Verdict.STATISTICAL: "Roundings move some outputs too far to compare them element by element: "
    "their error as a whole is that of equal roundings.",
    Verdict.TOLERATED: "Outputs depart from the reference by more than a tenth of their spread, "
    "which the tolerance of the request allows.",
}
_ROOFS = {"memory": "memory delivers", "compute": "the processor computes"}


def sentences(
    dims: Sequence[DimReport], numerics: NumericsReport, profiles: Sequence[Profile]
) -> tuple[str, ...]:
    """Say what matters most first: unverified outputs, then latency, then untested ranges."""
    measured = [profile for profile in profiles if profile.measured]
    ranked = [
        *_unchecked(numerics),
        *(_slow(measured[-1], dims) if measured else _unmeasured(profiles)),
        *_untested(dims),
    ]
    return tuple(ranked[:MOST])


def _unchecked(numerics: NumericsReport) -> Iterator[str]:
    if numerics.verdict not in AGREED:
        why = f": {numerics.reason}" if numerics.reason else ""
        yield f"The outputs were not compared with a reference{why}."
    elif sentence := _UNLIKE.get(Verdict(numerics.verdict)):
        yield sentence


def _unmeasured(profiles: Sequence[Profile]) -> Iterator[str]:
    reason = next((profile.reason for profile in profiles if profile.reason), None)
    yield f"Nothing was measured{f': {reason}' if reason else ''}."


def _slow(profile: Profile, dims: Sequence[DimReport]) -> Iterator[str]:
    yield from _unstable(profile)
    rows = profile.operators.rows if profile.operators else ()
    if rows:
        yield _where_time_goes(rows)
    settled = [point for point in profile.points if point.stable is not False]
    behind = [
        (point.median_ms / point.reference.median_ms, point)
        for point in settled or profile.points
        if point.reference and point.reference.median_ms
    ]
    if behind and (worst := max(behind, key=lambda pair: pair[0]))[0] > _BEHIND:
        times, point = worst
        assert point.reference is not None
        text = f"At {_point(point.dims)} it takes {times:.1f} times as long as "
        yield f"{text}{point.reference.engine}{_favouring(point.dims, dims)}."


def _favouring(point: dict[str, int], dims: Sequence[DimReport]) -> str:
    """How to have the compiler favour the point; nothing for a model without dims of its own."""
    dim = next((one for one in dims if one.name in point), None)
    if dim is None:
        return ""
    declared = (
        f"{option_name(dim.name)}={dim.min}:{'' if dim.max is None else dim.max}@{point[dim.name]}"
    )
    return f": declare narrower ranges, or the sizes to favour, as in --dim {declared}"


def _unstable(profile: Profile) -> Iterator[str]:
    restless = [point for point in profile.points if point.stable is False]
    if restless:
        yield (
            f"{len(restless)} of {len(profile.points)} latencies did not settle: other work shared"
            " the processor, so measure again on an idle machine."
        )


def _where_time_goes(rows: Sequence[KernelTime]) -> str:
    """The group of kernels of one family with the greatest share."""
    overhead = sum(row.share for row in rows if row.name.startswith(_MACHINE))
    groups: dict[tuple[str, str], list[KernelTime]] = {}
    for row in rows:
        if not row.name.startswith(_MACHINE):
            groups.setdefault((row.bound or "", row.family or ""), []).append(row)
    share, key = max(
        ((sum(row.share for row in group), key) for key, group in groups.items()),
        default=(0.0, ("", "")),
    )
    if overhead > max(share, _MUCH):
        return (
            f"{overhead:.0%} of the time is in the virtual machine, not in kernels: larger batches"
            " share it."
        )
    bound, family = key
    calls = sum(row.calls for row in groups[key])
    limit = {"memory": "memory-bound ", "compute": "compute-bound "}.get(bound, "")
    kernels = f"{limit}kernels of the family {family}" if family else f"{limit}kernels"
    times = f"{calls} call{'' if calls == 1 else 's'}"
    return f"{share:.0%} of the time is in {times} of {kernels}{_used(bound, groups[key])}."


def _used(bound: str, rows: Sequence[KernelTime]) -> str:
    """How much of the machine the kernels of a group use, weighted by their time."""
    known = [(row.share, row.percent_of_peak) for row in rows if row.percent_of_peak is not None]
    total = sum(share for share, _ in known)
    if not total or bound not in _ROOFS:
        return ""
    part = sum(share * percent for share, percent in known) / total
    return f", at {part:.0f} % of what {_ROOFS[bound]}"


def _untested(dims: Sequence[DimReport]) -> Iterator[str]:
    for dim in dims:
        top = dim.verified_up_to
        if top is not None and dim.max is None:
            text = f"{quote_name(dim.name)} was tested to {top} only: declare its maximum, as in "
            yield f"{text}{option_name(dim.name)}={dim.min}:{top}."
        elif top is not None and dim.max is not None and top < dim.max:
            help = "declare a smaller maximum, or give samples"
            yield f"{quote_name(dim.name)} was tested to {top} of {dim.max}: {help}."


def _point(dims: dict[str, int]) -> str:
    return (
        ", ".join(f"{quote_name(name)}={value}" for name, value in dims.items()) or "its only shape"
    )
