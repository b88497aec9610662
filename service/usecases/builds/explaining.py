"""Explains a stored bundle: its report, from the documents in the bundle and its profiles."""

from typing import Any

from artifacts.attestations import PROFILE, read_attached
from artifacts.documents import Descriptor, read_document
from artifacts.errors import InvalidManifest
from artifacts.oci import REPOSITORY, bundle_files
from artifacts.store import Artifacts
from relaxd.contract.bundle import kernels, numerics, profile
from relaxd.contract.bundle.manifest import FILENAME as MANIFEST
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.bundle.profile import Profile
from relaxd.contract.bundle.report import Report
from relaxd.contract.documents import read_json
from relaxd.reports.assemble import assemble


def report_of(store: Artifacts, digest: str, repository: str = REPOSITORY) -> Report:
    """Everything known of the bundle, with the profiles that refer to it in the repository; raises
    StoreError for what is no bundle, BundleError for a malformed one.
    """
    files = bundle_files(read_document(store.blobs, digest))
    if MANIFEST not in files:
        raise InvalidManifest(f"the artifact is not a bundle: it has no {MANIFEST}")
    manifest = Manifest.from_json(_document(store, files, MANIFEST))
    document = _document(store, files, kernels.FILENAME)
    return assemble(
        manifest,
        _document(store, files, numerics.FILENAME),
        kernels.kernels_of(document) if document else [],
        profiles_of(store, digest, repository),
        digest,
    )


def profiles_of(store: Artifacts, digest: str, repository: str) -> list[Profile]:
    """Read a bundle's profiles, the newest last; a bundle of an older release holds its own.

    Raises StoreError.
    """
    return [measured for measured, _ in measurements(store, digest, repository)]


def measurements(store: Artifacts, digest: str, repository: str) -> list[tuple[Profile, bytes]]:
    """Read profiles as `profiles_of` does, each with the document it was read from."""
    attached = read_attached(store, PROFILE, digest, repository, profile.MAX_BYTES)
    profiles = [
        (Profile.read(content, referrer), content) for referrer, content in attached.items()
    ]
    files = bundle_files(read_document(store.blobs, digest))
    if profile.FILENAME in files:
        content = store.blobs.read(files[profile.FILENAME].digest)
        profiles.append((Profile.read(content), content))
    return sorted(profiles, key=lambda one: one[0].measured_at or "")


def _document(store: Artifacts, files: dict[str, Descriptor], name: str) -> Any:
    return read_json(store.blobs.read(files[name].digest), name) if name in files else None
