"""Bundles of registries, kept on this machine by their digest: each is pulled once."""

from pathlib import Path

from relaxd.client.client import Client
from relaxd.contract.manifest import FILENAME


def kept(ref: str, folder: Path, target: str | None = None) -> Path:
    """The folder of the bundle that the reference names, pulled unless it is there; by default the
    best that this machine can run. A digest that is there is asked of nobody. Raises as `pull`.
    """
    _, at, digest = ref.partition("@")
    if at and target is None and (place := _place(folder, digest)).exists():
        return place.parent
    with Client() as client:
        digest = client.resolve(ref, target)
        place = _place(folder, digest)
        if not place.exists():
            client.pull_digest(ref, digest, place.parent)
        return place.parent


def _place(folder: Path, digest: str) -> Path:
    return folder / digest.replace(":", "-") / FILENAME
