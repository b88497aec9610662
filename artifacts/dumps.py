"""Dumps of the compiler beside bundles: an OCI artifact each, whose subject is the bundle."""

from pathlib import Path

from artifacts.documents import Descriptor, is_complete, read_document
from artifacts.oci import REPOSITORY, Published, bundle_files, publish_files
from artifacts.referrers import referrers_of_type
from artifacts.store import Artifacts

DUMP = "application/vnd.relaxd.dump.v1"


def publish_dump(
    store: Artifacts, directory: Path, bundle: str, repository: str = REPOSITORY
) -> Published:
    """Stores every file under `directory` and a manifest that refers to the bundle of that digest,
    by which registries list it as a referrer.
    """
    document = read_document(store.blobs, bundle)
    subject = Descriptor(document.media_type, bundle, store.blobs.size(bundle))
    published = publish_files(store.blobs, directory, DUMP, {}, subject)
    store.references.refer(repository, bundle, published.digest)
    return published


def dump_of(store: Artifacts, bundle: str, repository: str = REPOSITORY) -> Published | None:
    """The dump of a bundle, if one is in the store with all its files."""
    for digest in referrers_of_type(store, repository, bundle, DUMP):
        if is_complete(store.blobs, digest):
            document = read_document(store.blobs, digest)
            size = sum(layer.size for layer in bundle_files(document).values())
            return Published(digest, size, f"{repository}@{digest}")
    return None
