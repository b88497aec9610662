"""A cache of pulled bundles by digest: each is pulled once."""

from pathlib import Path

from relaxd.client.client import Client
from relaxd.contract.bundle.manifest import FILENAME


def pull_cached(ref: str, folder: Path, target: str | None = None) -> Path:
    """The folder of the bundle that a reference names, pulled unless it is in `folder`.

    target: by default the best that this machine can run. A reference by a digest that is in
    `folder` needs no network. Raises the errors of `pull`.
    """
    _, separator, digest = ref.partition("@")
    if separator and target is None and (manifest := _manifest(folder, digest)).exists():
        return manifest.parent
    with Client() as client:
        digest = client.resolve(ref, target)
        manifest = _manifest(folder, digest)
        if not manifest.exists():
            client.pull_digest(ref, digest, manifest.parent)
        return manifest.parent


def _manifest(folder: Path, digest: str) -> Path:
    return folder / digest.replace(":", "-") / FILENAME
