"""Models of several files in the store: a manifest that names them, each a blob of its own."""

from collections.abc import Mapping

from artifacts.documents import MAX_MANIFEST, TITLE, read_document
from artifacts.errors import InvalidManifest
from artifacts.store import Blob, BlobStore
from relaxd.contract.model_files import CONFIG_CONTENT, check_names, checked_name, manifest_of
from relaxd.errors import DeclarationError


def put_model(blobs: BlobStore, files: Mapping[str, Blob]) -> str:
    """The digest that names the model of these files, which are in the store; the manifest of
    several is put there too. Raises StoreError.
    """
    if len(files) == 1:
        return next(iter(files.values())).digest
    blobs.put(CONFIG_CONTENT)
    return blobs.put(manifest_of({name: (b.digest, b.size) for name, b in files.items()})).digest


def files_of_model(blobs: BlobStore, digest: str) -> Mapping[str, str] | None:
    """The digests of a model's files by name; None for a model of one file. Raises DeclarationError
    for a manifest whose files have no names of a model's files, BlobNotFound, BlobCorrupt and
    StorageFailed.
    """
    if blobs.size(digest) > MAX_MANIFEST:
        return None
    try:
        document = read_document(blobs, digest)
    except InvalidManifest:
        return None
    files = {checked_name(each.annotations.get(TITLE, "")): each.digest for each in document.layers}
    if not files or len(files) < len(document.layers):
        raise DeclarationError(
            "the model's manifest lists no files, or two of the same name",
            field="model",
            hint="give each layer its file's name as title, as `oras push` does",
        )
    check_names(files)
    return files
