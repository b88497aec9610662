"""Explains a stored bundle: its report, from the documents in the bundle and its profiles."""

from typing import Any

from artifacts.documents import Descriptor, read_document
from artifacts.errors import InvalidManifest
from artifacts.oci import bundle_files
from artifacts.store import Artifacts
from relaxd.contract import numerics, profile
from relaxd.contract.documents import read_json
from relaxd.contract.manifest import FILENAME as MANIFEST
from relaxd.contract.manifest import Manifest
from relaxd.contract.profile import Profile
from relaxd.contract.report import Report
from relaxd.reports.assemble import assemble


def report_of(store: Artifacts, digest: str) -> Report:
    """Everything known of the bundle; raises StoreError for what is no bundle, BundleError for a
    malformed one.
    """
    files = bundle_files(read_document(store.blobs, digest))
    if MANIFEST not in files:
        raise InvalidManifest(f"the artifact has no {MANIFEST}, so it is no bundle")
    manifest = Manifest.from_json(_document(store, files, MANIFEST))
    measured = _document(store, files, profile.FILENAME) or {}
    profiles = [Profile.from_json(measured)] if measured else []
    return assemble(
        manifest,
        _document(store, files, numerics.FILENAME),
        measured.get("kernels", []),
        profiles,
        digest,
    )


def _document(store: Artifacts, files: dict[str, Descriptor], name: str) -> Any:
    return read_json(store.blobs.read(files[name].digest), name) if name in files else None
