"""The builds of a registered model over its versions: what each measured, and what changed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from artifacts.documents import INDEXES, read_document
from artifacts.errors import StoreError
from artifacts.oci import TARGET, bundle_files
from artifacts.store import Artifacts
from relaxd.contract.action import Difference, differences
from relaxd.contract.bundle.manifest import FILENAME
from relaxd.contract.bundle.profile import TimedPoint
from relaxd.contract.bundle.report import Report
from relaxd.errors import BundleError
from service.core import Core
from service.identity import bundles_of
from service.usecases.builds.explaining import report_of
from service.usecases.registry.models import list_versions
from service.usecases.store import holdings

REMEMBERED_S = 60.0
"""Bundles do not change, but a newer profile may be attached to one."""


@dataclass(frozen=True)
class MeasuredBuild:
    """One target of a version.

    dims, latency_ms, reference_ms, processor, measured_at: of the newest profile, at the favoured
    sizes; reference_ms: what the reference runtime took. error: the greatest share of what is
    allowed that any output used. changed: the parts of the action key that differ from the build of
    the same target in the version before; None where there is no such build. problem: why a bundle
    cannot be read, whose other members are then None.
    """

    target: str
    digest: str
    version: int = 0
    size: int | None = None
    status: str | None = None
    dims: Mapping[str, int] | None = None
    latency_ms: float | None = None
    reference_ms: float | None = None
    processor: str | None = None
    measured_at: str | None = None
    error: float | None = None
    action_key: str | None = None
    changed: tuple[Difference, ...] | None = None
    problem: str | None = None


Parts = dict[str, Any]


def list_builds(
    core: Core, tenant: str, name: str, *, before: int | None = None, limit: int = 20
) -> list[MeasuredBuild]:
    """The builds of so many versions of the name, the newest first; raises DatabaseUnavailable."""
    versions = list_versions(core, tenant, name, before=before, limit=limit + 1)
    builds: list[MeasuredBuild] = []
    older: dict[str, Parts] = {}
    for version in reversed(versions):
        measured = _remembered(core, tenant, version.digest)
        for build, parts in measured:
            known = older.get(build.target)
            changed = None if known is None else tuple(differences(known, parts))
            builds.append(replace(build, version=version.version, changed=changed))
        # A version may lack a target: the next that has it is compared with the last that did.
        older |= {build.target: parts for build, parts in measured if parts}
    shown = {version.version for version in versions[:limit]}
    return [build for build in reversed(builds) if build.version in shown]


def _remembered(core: Core, tenant: str, digest: str) -> list[tuple[MeasuredBuild, Parts]]:
    key = ("measured", tenant, digest)
    return core.recent.get(key, core.clock(), REMEMBERED_S, lambda: _measured(core, tenant, digest))


def _measured(core: Core, tenant: str, digest: str) -> list[tuple[MeasuredBuild, Parts]]:
    """The bundles of a digest, in reverse order, with the parts of their action keys."""
    store = holdings.view(core, tenant)
    try:
        document = read_document(store.blobs, digest)
    except StoreError as error:
        return [(MeasuredBuild("", digest, problem=str(error)), {})]
    if document.media_type not in INDEXES:
        return [_measure(store, "", digest, tenant)]
    listed = [(child.annotations.get(TARGET, ""), child.digest) for child in document.children]
    return [_measure(store, target, child, tenant) for target, child in reversed(listed)]


def _measure(
    store: Artifacts, target: str, digest: str, tenant: str
) -> tuple[MeasuredBuild, Parts]:
    try:
        report = report_of(store, digest, bundles_of(tenant))
        files = bundle_files(read_document(store.blobs, digest))
        key = json.loads(store.blobs.read(files[FILENAME].digest))["action_key"]
    except (StoreError, BundleError) as error:
        return MeasuredBuild(target, digest, problem=str(error)), {}
    parts = key.get("parts")
    return _summarize(report, digest), parts if isinstance(parts, dict) else {}


def _summarize(report: Report, digest: str) -> MeasuredBuild:
    profile = next((one for one in reversed(report.profiles) if one.measured), None)
    point = _favoured(profile.points) if profile else None
    used = [point.of_tolerance for output in report.numerics.outputs for point in output.points]
    return MeasuredBuild(
        target=report.target.name,
        digest=digest,
        size=report.sizes.total,
        status=report.numerics.status or report.target.status,
        dims=point.dims if point else None,
        latency_ms=point.median_ms if point else None,
        reference_ms=point.reference.median_ms if point and point.reference else None,
        processor=profile.machine.processor if profile else None,
        measured_at=profile.measured_at if profile else None,
        error=max((share for share in used if share is not None), default=None),
        action_key=report.action_key,
    )


def _favoured(points: tuple[TimedPoint, ...]) -> TimedPoint | None:
    return next((point for point in points if point.label == "opt"), points[0] if points else None)
