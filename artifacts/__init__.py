"""The content-addressed store: blobs, the action cache, tags, and bundles as OCI artifacts."""

from functools import partial
from pathlib import Path

from artifacts.cache import ActionCache
from artifacts.documents import is_complete
from artifacts.local import LocalRecords, LocalStore
from artifacts.references import References
from artifacts.store import Artifacts, BlobStore, Records


def open_store(location: str | Path) -> Artifacts:
    """Open the store at a path, a `file://` URL, or `s3://`, `gs://`, `az://` and `memory://`
    (empty, gone at exit).

    Raises UnsupportedStore for another scheme, StorageFailed when the store cannot be opened.
    """
    text = str(location)
    if "://" in text and not text.startswith("file://"):
        return _open_remote(text)
    root = Path(text.removeprefix("file://"))
    return _assemble(LocalStore(root), LocalRecords(root))


def _open_remote(url: str) -> Artifacts:
    from artifacts.remote import (  # obstore is loaded only where it is used
        ObjectStore,
        RemoteRecords,
        connect,
    )

    handle = connect(url)
    return _assemble(ObjectStore(handle), RemoteRecords(handle))


def _assemble(blobs: BlobStore, records: Records) -> Artifacts:
    return Artifacts(blobs, ActionCache(records, partial(is_complete, blobs)), References(records))
