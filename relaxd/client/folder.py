"""Folders that change whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relaxd.client.errors import PullError
from relaxd.contract.bundle.manifest import DUMP_START, FILENAME, REPRODUCER_START


def clear_folder(directory: Path) -> Path:
    """Remove an older dump or reproducer, so that its files do not mix with those of the next.

    Raises PullError as `replacing` does.
    """
    _check_free(directory)
    shutil.rmtree(directory, ignore_errors=True)
    return directory


def _check_free(directory: Path) -> None:
    if not directory.exists():
        return
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else {""}
    if names and not names & {FILENAME, DUMP_START, REPRODUCER_START}:
        raise PullError(
            f"the folder {directory} already holds other files"
            if directory.is_dir()
            else f"{directory} is a file, not a folder",
            hint="choose another path: a new or empty folder, or an older bundle",
        )


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """A fresh folder that takes `directory`'s place if the block succeeds and is removed if it does
    not.

    `directory` must be absent, empty or an older bundle or dump; raises PullError otherwise.
    """
    directory = Path(os.path.abspath(directory))
    _check_free(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}.", dir=directory.parent) as scratch:
        # What compiles into it may be another user.
        os.chmod(scratch, 0o755)
        fresh = Path(scratch) / "new"
        fresh.mkdir()
        yield fresh
        if directory.exists():
            directory.rename(Path(scratch) / "old")
        fresh.rename(directory)
