"""Every kind of store, behind one face: the suite runs against each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest

from artifacts.local import LocalRecords, LocalStore
from artifacts.remote import ObjectStore, RemoteRecords, connect
from artifacts.store import BlobStore, Records, hex_of


@dataclass(frozen=True)
class Backend:
    """`corrupt` replaces a stored blob's bytes behind the store's back; `quarantined` counts what
    was set aside.
    """

    blobs: BlobStore
    records: Records
    corrupt: Callable[[str, bytes], None]
    quarantined: Callable[[], int]


def local(root: Path) -> Backend:
    def corrupt(digest: str, data: bytes) -> None:
        path = root / "blobs" / "sha256" / hex_of(digest)[:2] / hex_of(digest)
        path.chmod(0o644)
        path.write_bytes(data)

    return Backend(
        LocalStore(root),
        LocalRecords(root),
        corrupt,
        lambda: len(list((root / "quarantine").iterdir())),
    )


def remote(url: str) -> Backend:
    handle = connect(url)
    return Backend(
        ObjectStore(handle),
        RemoteRecords(handle),
        lambda digest, data: obstore.put(handle, f"blobs/sha256/{hex_of(digest)}", data) and None,
        lambda: len(obstore.list_with_delimiter(handle, "quarantine/")["objects"]),
    )


BACKENDS: dict[str, Callable[[Path], Backend]] = {
    "local": local,
    "memory": lambda path: remote("memory://"),
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return BACKENDS[request.param](tmp_path / "store")


@pytest.fixture
def blobs(backend: Backend) -> BlobStore:
    return backend.blobs


@pytest.fixture
def records(backend: Backend) -> Records:
    return backend.records
