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
    """`corrupt` replaces a stored blob's bytes behind the store's back, `garble` a record's;
    `quarantined` counts what was set aside; `tick_s` is how finely the store tells times apart.
    """

    blobs: BlobStore
    records: Records
    corrupt: Callable[[str, bytes], None]
    garble: Callable[[str, bytes], object]
    quarantined: Callable[[], int]
    tick_s: float = 0.02


def local(root: Path) -> Backend:
    def corrupt(digest: str, data: bytes) -> None:
        path = root / "blobs" / "sha256" / hex_of(digest)[:2] / hex_of(digest)
        path.chmod(0o644)
        path.write_bytes(data)

    return Backend(
        LocalStore(root),
        LocalRecords(root),
        corrupt,
        lambda name, data: (root / "records" / name).write_bytes(data),
        lambda: len(list((root / "quarantine").iterdir())),
    )


def remote(url: str, tick_s: float = 0.02) -> Backend:
    handle = connect(url)
    return Backend(
        ObjectStore(handle),
        RemoteRecords(handle),
        lambda digest, data: obstore.put(handle, f"blobs/sha256/{hex_of(digest)}", data) and None,
        lambda name, data: obstore.put(handle, f"records/{name}", data),
        lambda: len(obstore.list_with_delimiter(handle, "quarantine/")["objects"]),
        tick_s,
    )


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.scaled)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    match request.param:
        case "local":
            return local(tmp_path / "store")
        case "memory":
            return remote("memory://")
    # S3 tells times in whole seconds.
    return remote(request.getfixturevalue("s3_url"), tick_s=1.0)


@pytest.fixture
def blobs(backend: Backend) -> BlobStore:
    return backend.blobs


@pytest.fixture
def records(backend: Backend) -> Records:
    return backend.records
