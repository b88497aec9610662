"""The bundles that a branch was last merged with: tags in a service's registry, or folders."""

import re
import shutil
from pathlib import Path
from typing import Protocol

from relaxd.client.client import Client
from relaxd.client.reference import BUNDLES
from relaxd.errors import ServerError

_DIGEST = "digest"


class Baselines(Protocol):
    """One bundle for each model and target of one branch."""

    def find(self, model: str, target: str, folder: Path) -> tuple[str, Path] | None:
        """Its digest and a folder with its files, `folder` if they are fetched; None without."""
        ...

    def move(self, model: str, target: str, digest: str, bundle: Path) -> None:
        """Make the bundle the baseline."""
        ...


class RegistryBaselines:
    """Tags `ci-BRANCH-MODEL-TARGET` in the repository of bundles; moving one takes `push`."""

    def __init__(self, server: str, token: str | None, branch: str) -> None:
        self._server, self._token, self._branch = server, token, branch

    def find(self, model: str, target: str, folder: Path) -> tuple[str, Path] | None:
        """See Baselines."""
        with Client(self._server, token=self._token) as client:
            ref = f"{client.repository(BUNDLES)}:{tag_of(self._branch, model, target)}"
            try:
                digest = client.resolve(ref)
            except ServerError as error:
                if error.status == 404:
                    return None
                raise
            return digest, client.pull_digest(ref, digest, folder)

    def move(self, model: str, target: str, digest: str, bundle: Path) -> None:
        """See Baselines."""
        with Client(self._server, token=self._token) as client:
            client.tag(digest, tag_of(self._branch, model, target))


class FolderBaselines:
    """Folders `BRANCH/MODEL/TARGET`, which a CI keeps in its cache, each with the bundle and the
    bundle's digest.
    """

    def __init__(self, root: Path, branch: str) -> None:
        self._root = root / _name(branch)

    def find(self, model: str, target: str, folder: Path) -> tuple[str, Path] | None:
        """See Baselines."""
        root = self._root / _name(model) / _name(target)
        if not (root / _DIGEST).is_file():
            return None
        return (root / _DIGEST).read_text().strip(), root / "bundle"

    def move(self, model: str, target: str, digest: str, bundle: Path) -> None:
        """See Baselines."""
        root = self._root / _name(model) / _name(target)
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(bundle, root / "bundle")
        (root / _DIGEST).write_text(digest + "\n")


def tag_of(branch: str, model: str, target: str) -> str:
    """The tag of a baseline: at most 128 characters that a registry takes."""
    return f"ci-{_name(branch)}-{_name(model)}-{_name(target)}"[:128]


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text).lstrip(".") or "_"
