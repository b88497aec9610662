"""Scratch folders of running builds, removed with the build or after their process died."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class Workshop:
    """A process's own folder under `root`; a lock that dies with the process marks it as in
    use.
    """

    def __init__(self, root: Path, name: str) -> None:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / ".lock"):
            _clear_abandoned(root)
            self._path = root / f"{name}.lock"
            self._lock = _open_lock(self._path)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._folder = root / name
            self._folder.mkdir(exist_ok=True)

    @property
    def folder(self) -> Path:
        """The folder, whose content goes with the process however it ends."""
        return self._folder

    @contextmanager
    def bench(self) -> Iterator[Path]:
        """An empty folder for one build, removed at the end."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            # Closed to others as a whole, open to the user that a build runs as: that sees the
            # inner one alone.
            inner = Path(folder) / "build"
            inner.mkdir()
            yield inner

    def close(self) -> None:
        """Remove the folder and let go of the lock."""
        shutil.rmtree(self._folder)
        self._path.unlink()
        self._lock.close()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with _open_lock(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _open_lock(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")


def _clear_abandoned(root: Path) -> None:
    for path in root.glob("*.lock"):
        if path.name == ".lock":
            continue
        with open(path, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if (folder := path.with_suffix("")).exists():
                shutil.rmtree(folder)
            path.unlink()
