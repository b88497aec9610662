"""The content-addressed store: blobs, the action cache, tags, and bundles as OCI artifacts."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from artifacts.cache import ActionCache
from artifacts.documents import keep
from artifacts.errors import UnsupportedStore
from artifacts.local import LocalRecords, LocalStore
from artifacts.references import References
from artifacts.store import Artifacts, BlobStore, Records


def open_store(location: str | Path) -> Artifacts:
    """Open the store at a path, a `file://` URL, or `s3://`, `gs://`, `az://` and `memory://`
    (empty, gone at exit).

    Raises UnsupportedStore for another scheme, StorageFailed when the store cannot be opened.
    """
    text = str(location)
    scheme, marked, path = text.partition("://")
    if not marked:
        return _open_local(text, text)
    if scheme not in _OPENERS:
        raise UnsupportedStore(
            f"no kind of store has the URL {text!r}",
            hint=f"use a path or one of {', '.join(f'{known}://' for known in _OPENERS)}",
            url=text,
        )
    return _OPENERS[scheme](text, path)


def _open_local(url: str, path: str) -> Artifacts:
    return _assemble(LocalStore(Path(path)), LocalRecords(Path(path)))


def _open_remote(url: str, path: str) -> Artifacts:
    from artifacts.remote import (  # obstore is loaded only where it is used
        ObjectStore,
        RemoteRecords,
        connect,
    )

    handle = connect(url)
    return _assemble(ObjectStore(handle), RemoteRecords(handle))


def _assemble(blobs: BlobStore, records: Records) -> Artifacts:
    return Artifacts(blobs, ActionCache(records, partial(keep, blobs)), References(records))


_OPENERS: dict[str, Callable[[str, str], Artifacts]] = {
    "file": _open_local,
    **dict.fromkeys(("s3", "gs", "az", "memory"), _open_remote),
}
"""By the scheme of a URL, what opens a store, given the whole URL and what follows `://`."""
