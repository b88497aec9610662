"""Compares the reports of two builds: what they hold, not how fast they are here."""

from collections.abc import Mapping
from typing import Any

from relaxd.contract.bundle.diff import BuildDiff, Change
from relaxd.contract.bundle.report import DimReport, Kernel, Report

_SLOWER = 1.1


def compare(base: Report, head: Report, names: tuple[str, str]) -> BuildDiff:
    """Everything in which two reports differ; `names` are how the builds were called."""
    return BuildDiff(
        *names,
        sizes=_changes(_sizes(base), _sizes(head), every=True),
        kernels=_changes(_kernels(base), _kernels(head)),
        slower=_slower(_times(base), _times(head)),
        nodes=_changes(_nodes(base), _nodes(head)),
        dims=_changes(_dims(base), _dims(head)),
        options=_changes(base.options, head.options),
        toolchain=_changes(base.toolchain, head.toolchain),
    )


def _changes(
    base: Mapping[str, Any], head: Mapping[str, Any], every: bool = False
) -> tuple[Change, ...]:
    return tuple(
        Change(name, base.get(name), head.get(name))
        for name in sorted({*base, *head})
        if every or base.get(name) != head.get(name)
    )


def _sizes(report: Report) -> dict[str, int]:
    sizes = report.sizes
    return {"total": sizes.total, "library": sizes.library, "weights": sizes.weights}


def _kernels(report: Report) -> dict[str, str]:
    return {kernel.name: _scheduled(kernel) for kernel in report.kernels}


def _scheduled(kernel: Kernel) -> str:
    return f"{kernel.family} {kernel.tile}".strip()


def _nodes(report: Report) -> dict[str, list[str]]:
    nodes_by_name: dict[str, list[str]] = {}
    for kernel in report.kernels:
        for node in kernel.nodes:
            nodes_by_name.setdefault(node, []).append(kernel.name)
    return nodes_by_name


def _dims(report: Report) -> dict[str, str]:
    """Each range as the command line writes it: `1:512%8@128`."""
    return {dim.name: _range(dim) for dim in report.dims}


def _range(dim: DimReport) -> str:
    step = f"%{dim.multiple}" if dim.multiple > 1 else ""
    favoured = "" if dim.opt is None else f"@{dim.opt}"
    most = "" if dim.max is None else dim.max
    return f"{dim.min}{'' if dim.min == dim.max else f':{most}'}{step}{favoured}"


def _times(report: Report) -> dict[str, float]:
    profile = report.profile
    rows = profile.operators.rows if profile and profile.operators else ()
    return {row.name: row.ms for row in rows}


def _slower(base: Mapping[str, float], head: Mapping[str, float]) -> tuple[Change, ...]:
    return tuple(
        Change(name, base[name], head[name])
        for name in sorted(base.keys() & head.keys(), key=lambda name: base[name] - head[name])
        if head[name] > _SLOWER * base[name]
    )
