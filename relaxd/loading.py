"""`relaxd.load`: a bundle from a folder, a tar, or a registry by its OCI reference."""

import os
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from relaxd.loader import opening

if TYPE_CHECKING:
    from relaxd.loader.metrics import CallMetrics
    from relaxd.loader.model import Model
    from relaxd.provenance.freshness import Policy

SCHEME = "oci://"
VARIABLE = "RELAXD_BUNDLES_DIR"


def load(
    path: str | PathLike[str],
    *,
    threads: int | None = None,
    trust: "Policy | None" = None,
    metrics: "CallMetrics | None" = None,
    target: str | None = None,
    copy_weights: bool | None = None,
) -> "Model":
    """Load a bundle: a folder or a tar, a folder that `skopeo copy` wrote (`dir:` or `oci:`), or
    `oci://host/name@sha256:...`, which is pulled once and kept.

    threads, trust, metrics, copy_weights and the errors: as in `relaxd.loader.opening.load`.
    target: which of several in a registry, by default the best that this machine can run. A pulled
    bundle is kept by its digest below RELAXD_BUNDLES_DIR, by default ~/.cache/relaxd/bundles;
    pulling raises PullError, ServerError, ServerUnreachable.
    """
    if str(path).startswith(SCHEME):
        from relaxd.client.bundle_cache import pull_cached

        path = pull_cached(str(path), _folder(), target)
    return opening.load(
        path, threads=threads, trust=trust, metrics=metrics, copy_weights=copy_weights
    )


def _folder() -> Path:
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "relaxd" / "bundles"
