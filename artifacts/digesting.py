"""The digest of a bundle that is in no store."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from artifacts.oci import bundle_annotations, publish_bundle
from artifacts.store import Blob
from relaxd.contract.bundle import profile


class _Nowhere:
    """A store that keeps nothing, and says under which digests it would."""

    def put(self, data: bytes | Iterable[bytes], expected: str | None = None) -> Blob:
        content, size = hashlib.sha256(), 0
        for chunk in [data] if isinstance(data, bytes) else data:
            content.update(chunk)
            size += len(chunk)
        return Blob(f"sha256:{content.hexdigest()}", size)


def bundle_digest(directory: Path, action_key: str, target: str) -> str:
    """The digest of the manifest under which a service publishes the bundle. The profile, which
    differs from run to run, is left out: there it is an artifact of its own.
    """
    nowhere: Any = _Nowhere()
    annotations = bundle_annotations(action_key, target)
    return publish_bundle(nowhere, directory, annotations, frozenset({profile.FILENAME})).digest
