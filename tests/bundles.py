"""A published bundle as files again, straight from the store."""

from pathlib import Path

from artifacts.documents import read_document
from artifacts.oci import bundle_files
from artifacts.store import BlobStore


def fetch(blobs: BlobStore, digest: str, directory: Path) -> None:
    """Write the bundle's files into `directory`; nothing where its manifest is refused."""
    for title, layer in bundle_files(read_document(blobs, digest)).items():
        path = directory / title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(blobs.open(layer.digest)))
