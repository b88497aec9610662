"""Objects of compiled kernels on disk, by the digest of what they were compiled from; whoever reads
one checks that it is what was written.
"""

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

KERNELS_MB = 1024
"""MiB of kernels that are kept by default."""

_KEY = re.compile(r"[0-9a-f]{64}")
_DIGEST_BYTES = 32
_USED = "used"
_SHARE_LEFT = 0.9
"""What is left of a folder's limit once it was passed: the next builds find room."""

_LARGEST = 64 << 20
_MOST = 1 << 14


@dataclass(frozen=True)
class Objects:
    """A folder of objects, below which each lies at the first two digits of its key; it may not
    exist.
    """

    folder: Path

    def get(self, key: str) -> bytes | None:
        """The object, None where there is none, or one that is not what was written."""
        try:
            return _check(key, self._path(key).read_bytes())
        except OSError:
            return None

    def put(self, key: str, content: bytes) -> None:
        """Store an object, in place of any that is there; raises OSError."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{key}.{secrets.token_hex(4)}")
        try:
            partial.write_bytes(_sum(key, content) + content)
            partial.rename(path)
        finally:
            partial.unlink(missing_ok=True)

    def note_use(self, keys: Iterable[str]) -> None:
        """Leave a list of the objects of another folder that a build took; raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _USED).write_text("".join(f"{key}\n" for key in keys))

    def touch(self, keys: Iterable[str]) -> None:
        """Make the objects the last that `shrink` removes."""
        for key in keys:
            try:
                os.utime(self._path(key))
            except OSError:
                continue

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key


@dataclass(frozen=True)
class KernelObjects:
    """The objects that builds of one owner may read, which are theirs alone, and the space for
    those of all owners.

    root: holds a folder for each owner; bytes: the most that it may hold.
    """

    root: Path
    owner: str
    bytes: int

    @property
    def objects(self) -> Objects:
        """The owner's."""
        return Objects(self.root / hashlib.sha256(self.owner.encode()).hexdigest()[:32])

    def take(self, left: Path) -> int:
        """Move in what a build that has ended left in its folder, and mark what it used; how many
        objects are new. Raises OSError.

        The build may have written anything there: what is no object of a plausible size is passed
        over, and an object that is here and whole stays as it is.
        """
        used, new = left / _USED, 0
        if _is_plain(used) and used.stat().st_size <= _MOST * (len("\n") + 64):
            words = used.read_text(errors="replace").split()
            self.objects.touch(filter(_KEY.fullmatch, words))
        for path in _left(left):
            if self.objects.get(path.name) is not None:
                continue
            content = _check(path.name, path.read_bytes())
            if content is not None:
                self.objects.put(path.name, content)
                new += 1
        if new:
            shrink(self.root, self.bytes)
        return new


def shrink(root: Path, limit: int) -> None:
    """Remove the files that were not used for longest, until the folder is below its limit."""
    files = sorted(_files(root))
    total = sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, path in files:
        if total <= _SHARE_LEFT * limit:
            return
        # Another worker may remove the same ones.
        Path(path).unlink(missing_ok=True)
        total -= size


def _files(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Time of the last use, size and path of every file below a folder."""
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            try:
                status = os.lstat(path)
            except OSError:
                continue
            yield status.st_mtime, status.st_size, path


def _left(folder: Path) -> Iterator[Path]:
    """Files that may be objects, at most so many and none of them a link."""
    taken = 0
    for shelf in sorted(folder.iterdir()) if _is_folder(folder) else []:
        for path in sorted(shelf.iterdir()) if _is_folder(shelf) else []:
            named = _KEY.fullmatch(path.name) and path.parent.name == path.name[:2]
            if named and _is_plain(path) and path.stat().st_size <= _LARGEST and taken < _MOST:
                taken += 1
                yield path


def _is_plain(path: Path) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _sum(key: str, content: bytes) -> bytes:
    return hashlib.sha256(bytes.fromhex(key) + content).digest()


def _check(key: str, stored: bytes) -> bytes | None:
    """The object in a file, None where the file is not what `put` wrote for the key."""
    content = stored[_DIGEST_BYTES:]
    return content if stored[:_DIGEST_BYTES] == _sum(key, content) else None
