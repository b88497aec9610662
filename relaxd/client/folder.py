"""Folders that change whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relaxd.client.errors import PullError
from relaxd.contract.manifest import FILENAME


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """A fresh folder that takes `directory`'s place if the block succeeds and is removed if it does
    not.

    `directory` must be absent, empty or an older bundle; raises PullError otherwise.
    """
    directory = Path(os.path.abspath(directory))
    if directory.exists() and not (
        directory.is_dir() and (not any(directory.iterdir()) or (directory / FILENAME).exists())
    ):
        raise PullError(
            f"{directory} is in the way",
            hint="name a folder that is absent, empty, or an older bundle",
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as scratch:
        fresh = Path(scratch) / "new"
        fresh.mkdir()
        yield fresh
        if directory.exists():
            directory.rename(Path(scratch) / "old")
        fresh.rename(directory)
