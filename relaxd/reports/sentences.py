"""Explains in at most three sentences why a build is slow, and what would help."""

from collections.abc import Iterator, Sequence

from relaxd.contract.bundle.numerics import AGREED, Verdict
from relaxd.contract.bundle.profile import KernelTime, Profile, TimedPoint
from relaxd.contract.bundle.report import DimReport, NumericsReport, WeightsReport
from relaxd.contract.dims.names import option_name, quote_name

MOST = 3
_MUCH = 0.2
_BEHIND = 1.05
_MACHINE = "vm."
_UNTUNED = "given"
"""The family of kernels that the importers and TVM write."""
_UNLIKE = {
    Verdict.REFERENCE_INEXACT: "Outputs differ from the reference, but they are closer to an "
    "evaluation in float64 than the reference is.",
    Verdict.STATISTICAL: "Some outputs are too sensitive to rounding to compare them element by "
    "element: their overall error is as large as rounding explains.",
    Verdict.TOLERATED: "Outputs differ from the reference by more than 10 % of their spread, which "
    "the requested tolerance allows.",
}
_ROOFS = {"memory": "memory bandwidth", "compute": "peak compute rate"}


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


def summary(profile: Profile, numerics: NumericsReport) -> str:
    """One line on what a build gives: time at the favoured point with the share of the reference's,
    and by how much each quantization changes outputs; empty where neither was measured.
    """
    parts = [_time(profile.favoured)] if profile.favoured else []
    for what, change in (
        ("operands", numerics.precision),
        ("weights", numerics.weights),
        ("KV caches", numerics.cache),
    ):
        if change is not None and change.error is not None:
            limit = "" if change.limit is None else f" ({_percent(change.limit, 2)} is allowed)"
            parts.append(f"{change.form} {what} change {_outputs(change, change.error)}{limit}")
    return "; ".join(parts)


def _outputs(change: WeightsReport, error: float) -> str:
    """`outputs by 3.10 %`; of a language model first how often the most probable token is another,
    of the random tokens that verification draws.
    """
    logits = change.logits
    if logits is None or logits.argmax is None or logits.divergence is None:
        return f"outputs by {_percent(error, 2)}"
    return (
        f"the most probable token at {_percent(1 - logits.argmax, 1)} of random positions "
        f"(divergence {logits.divergence:.2g}), outputs by up to {_percent(error, 2)}"
    )


def _time(point: TimedPoint) -> str:
    """`1.23 ms at batch=1, 0.71 of onnxruntime's time`."""
    text = f"{point.median_ms:.3g} ms"
    if point.dims:
        text += f" at {_point(point.dims)}"
    if point.reference and point.reference.median_ms:
        engine = point.reference.engine.partition(" ")[0]
        text += f", {point.median_ms / point.reference.median_ms:.2f} of {engine}'s time"
    return text + (
        " (unreliable: other programs used the processor)" if _is_restless(point) else ""
    )


def _is_restless(point: TimedPoint) -> bool:
    """Tell whether times went on moving; those of a single call do not tell."""
    return point.stable is False and point.runs != 1


def _unchecked(numerics: NumericsReport) -> Iterator[str]:
    if numerics.verdict not in AGREED:
        why = f": {numerics.reason}" if numerics.reason else ""
        yield f"The outputs were not compared with a reference{why}."
    elif sentence := _UNLIKE.get(Verdict(numerics.verdict)):
        yield sentence
    elif numerics.earlier is not None:
        yield (
            f"An earlier build compared this code at {len(numerics.earlier.points)} shapes; with "
            f"these weights it was compared at {len(numerics.points)}."
        )


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
        yield f"{text}{point.reference.engine}{_alone(point.dims, dims)}"


def _alone(point: dict[str, int], dims: Sequence[DimReport]) -> str:
    """Advise a library for the point alone; nothing where every dim has one size already."""
    open_dims = [dim.name for dim in dims if dim.name in point and dim.min != dim.max]
    if not open_dims:
        return "."
    options = " ".join(f"--dim {option_name(name)}={point[name]}" for name in open_dims)
    return f". A library for this size alone may be faster: {options}."


def _unstable(profile: Profile) -> Iterator[str]:
    restless = [point for point in profile.points if _is_restless(point)]
    if restless:
        yield (
            f"{_timings(len(restless), len(profile.points))} unreliable: other programs used the "
            "processor. Repeat with `relaxd bench` on an idle machine."
        )


def _timings(count: int, of: int) -> str:
    """`1 of 3 timings is`, `2 of 3 timings are`, `The timings are`."""
    if count == of:
        return "The timings are" if of > 1 else "The timing is"
    return f"{count} of {of} timings {'is' if count == 1 else 'are'}"


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
            f"{_percent(overhead)} of the time is in the virtual machine, not in kernels: in "
            "larger batches its share is smaller."
        )
    bound, family = key
    calls = sum(row.calls for row in groups[key])
    limit = {"memory": "memory-bound ", "compute": "compute-bound "}.get(bound, "")
    times = f"{calls} call{'' if calls == 1 else 's'}"
    if family == _UNTUNED:
        nodes = _first_names(
            tuple(dict.fromkeys(node for row in groups[key] for node in row.nodes))
        )
        return (
            f"{_percent(share)} of the time is in {nodes or f'{limit}kernels'} ({times}), whose "
            "kernels relaxd does not tune."
        )
    kernels = f"{limit}{family} kernels" if family else f"{limit}kernels"
    return f"{_percent(share)} of the time is in {times} of {kernels}{_used(bound, groups[key])}."


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _first_names(names: Sequence[str]) -> str:
    """The first two names, and how many more there are; empty where there is none."""
    rest = len(names) - 2
    return ", ".join(names[:2]) + (f" and {rest} more" if rest > 0 else "")


def _used(bound: str, rows: Sequence[KernelTime]) -> str:
    """How much of the machine the kernels of a group use, weighted by their time."""
    known = [(row.share, row.percent_of_peak) for row in rows if row.percent_of_peak is not None]
    total = sum(share for share, _ in known)
    if not total or bound not in _ROOFS:
        return ""
    part = sum(share * percent for share, percent in known) / total
    return f", at {part:.0f} % of the {_ROOFS[bound]}"


def _untested(dims: Sequence[DimReport]) -> Iterator[str]:
    for dim in dims:
        top = dim.verified_up_to
        if top is not None and dim.max is None:
            text = f"{quote_name(dim.name)} was tested only up to {top}: declare its maximum, as in"
            yield f"{text} --dim {option_name(dim.name)}={dim.min}:{top}."
        elif top is not None and dim.max is not None and top < dim.max:
            help = "declare a smaller maximum, or give --samples of larger inputs"
            yield f"{quote_name(dim.name)} was tested up to {top} of {dim.max}: {help}."


def _point(dims: dict[str, int]) -> str:
    return (
        ", ".join(f"{quote_name(name)}={value}" for name, value in dims.items()) or "its only shape"
    )
