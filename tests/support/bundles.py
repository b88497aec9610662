"""A published bundle as files again, straight from the store."""

import json
from pathlib import Path
from typing import Any

from artifacts.documents import read_document
from artifacts.oci import bundle_files
from artifacts.store import BlobStore
from relaxd.contract.bundle.manifest import FileEntry, Manifest
from relaxd.loader.bundles.bundle import sha256_of


def fetch(blobs: BlobStore, digest: str, directory: Path) -> None:
    """Write the bundle's files into `directory`; nothing where its manifest is refused."""
    for title, layer in bundle_files(read_document(blobs, digest)).items():
        path = directory / title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(blobs.open(layer.digest)))


def seal(folder: Path, name: str, document: Any) -> None:
    """Write a JSON file of a bundle that its manifest lists."""
    path = folder / name
    path.write_text(json.dumps(document))
    manifest = Manifest.from_json(json.loads((folder / "manifest.json").read_text()))
    manifest.files[name] = FileEntry(sha256_of(path), path.stat().st_size)
    (folder / "manifest.json").write_text(json.dumps(manifest.to_json()))
