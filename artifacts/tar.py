"""Bundles as tar streams."""

import tarfile
from collections.abc import Iterator, Mapping

from artifacts.documents import Descriptor
from artifacts.store import BlobStore


def bundle_tar(blobs: BlobStore, files: Mapping[str, Descriptor]) -> Iterator[bytes]:
    """The files as a tar, each verified as it is read; the same files give the same bytes. Raises
    as BlobStore.open.
    """
    for name, layer in files.items():
        header = tarfile.TarInfo(name)
        header.size = layer.size
        yield header.tobuf(tarfile.PAX_FORMAT)
        yield from blobs.open(layer.digest)
        yield bytes(-layer.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)
