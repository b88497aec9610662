"""The index of a job: one OCI document over the bundles of all its targets, made once the job has ended."""

import json
from typing import Any

from artifacts.documents import is_complete, read_document
from artifacts.oci import REPOSITORY, IndexEntry, bundle_files, publish_index
from service.core import Core
from service.domain import Artifact, Job

_MANIFEST = "manifest.json"


def index_of(core: Core, job: Job) -> Artifact | None:
    """The index of an ended job, tagged `job-<id>`; None while it runs, and where no bundle is in the store; raises StoreError."""
    if not job.state.terminal:
        return None
    built = {
        build.target: build.artifact for build in job.builds if build.artifact and is_complete(core.store.blobs, build.artifact.digest)
    }
    if not built:
        return None
    tag = f"job-{job.id}"
    digest = core.store.references.resolve(REPOSITORY, tag)
    if digest is None:
        digest = publish_index(core.store.blobs, [_entry(core, target, artifact.digest) for target, artifact in built.items()])
        core.store.references.tag(REPOSITORY, tag, digest)
    return Artifact(digest, f"{REPOSITORY}:{tag}", sum(artifact.size for artifact in built.values()))


def _entry(core: Core, target: str, digest: str) -> IndexEntry:
    blobs = core.store.blobs
    files = bundle_files(read_document(blobs, digest))
    manifest: dict[str, Any] = json.loads(blobs.read(files[_MANIFEST].digest))
    load = manifest["load"]
    return IndexEntry(
        digest,
        target,
        load["arch"],
        os=load["os"],
        features=tuple(load["isa"]),
        device=load["device"],
        status=manifest["target"].get("status"),
    )
