"""A tar of a bundle is one that tarfile reads, and the same each time."""

import io
import tarfile

import pytest

from artifacts.documents import Descriptor
from artifacts.errors import BlobCorrupt
from artifacts.store import BlobStore
from artifacts.tar import bundle_tar
from tests.artifacts.conftest import Backend

CONTENTS = {
    "model.so": b"x" * 1000,
    "empty": b"",
    "block": b"y" * 512,
    "manifest.json": b"{}",
    "a-name-" + "n" * 150: b"long",
}


def store_contents(blobs: BlobStore) -> dict[str, Descriptor]:
    return {
        name: Descriptor("application/octet-stream", blobs.put(data).digest, len(data))
        for name, data in CONTENTS.items()
    }


def test_every_file_comes_back(blobs: BlobStore) -> None:
    data = b"".join(bundle_tar(blobs, store_contents(blobs)))
    assert len(data) % tarfile.BLOCKSIZE == 0
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        contents = {
            member.name: file.read()
            for member in tar.getmembers()
            if (file := tar.extractfile(member))
        }
    assert contents == CONTENTS
    assert b"".join(bundle_tar(blobs, store_contents(blobs))) == data


def test_a_corrupt_file_ends_the_tar(backend: Backend) -> None:
    files = store_contents(backend.blobs)
    backend.corrupt(files["block"].digest, b"z" * 512)
    with pytest.raises(BlobCorrupt):
        b"".join(bundle_tar(backend.blobs, files))
