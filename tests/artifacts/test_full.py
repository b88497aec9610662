"""A disk that is full, or fails, at every step: a typed error, nothing left, and whole again when
there is room.
"""

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifacts import open_store
from artifacts.errors import StorageFailed, StoreFull
from artifacts.local import LocalRecords, LocalStore
from relaxd.contract.canonical import digest_of

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            continue


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("filled", range(8))
def test_a_disk_with_less_and_less_room(small_disk, filled):
    store = open_store(small_disk / "store")
    stored = store.blobs.put(b"kept").digest
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(filled * MIB))
    before, data = files(small_disk), os.urandom(7 * MIB + MIB // 2)
    if filled:
        with pytest.raises(StoreFull) as caught:
            store.blobs.put(data[start : start + 1000] for start in range(0, len(data), 1000))
        assert "relaxd gc" in (caught.value.hint or "")
        assert files(small_disk) == before
        assert not store.blobs.has(digest_of(data))
    ballast.unlink()
    assert store.blobs.read(store.blobs.put(data).digest) == data
    assert store.blobs.read(stored) == b"kept"


def test_records_on_a_full_disk(small_disk):
    records = LocalRecords(small_disk / "store")
    records.set("a/b", "one")
    fill(small_disk / "ballast")
    before = files(small_disk)
    for write in (
        lambda: records.set("a/b", "x" * 9000),
        lambda: records.swap("a/b", "x" * 9000, records.get("a/b")),
        lambda: records.set("c/d", "x" * 9000),
    ):
        with pytest.raises(StoreFull):
            write()
    assert files(small_disk) == before
    assert records.get("a/b").value == "one"


def outcome(use: Callable[[], object]) -> type[StorageFailed] | None:
    try:
        use()
    except StorageFailed as error:
        return type(error)
    return None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fsync", "fdatasync", "rename", "open", "utime", "mkdir"])
def test_any_call_may_fail(tmp_path, monkeypatch, call, code):
    """The first such call of a put fails, then the second, and so on."""
    monkeypatch.setattr("artifacts.files.AHEAD", 4)
    store = LocalStore(tmp_path)
    real, data = getattr(os, call), b"content"
    for allowed in range(6):
        before, left = files(tmp_path), [allowed]

        def failing(*arguments, _left=left, **options):
            _left[0] -= 1
            if _left[0] == -1:
                raise OSError(code, os.strerror(code))
            return real(*arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(os, call, failing)
            failed = outcome(lambda: store.put(data))
        if failed is None:
            assert store.read(digest_of(data)) == data
        else:
            assert failed is (StorageFailed if code == errno.EIO else StoreFull)
            # What was named before the folder failed to sync is whole; there is nothing else.
            assert files(tmp_path) - before <= {
                store._path(digest_of(data)).relative_to(tmp_path).as_posix()
            }
    assert store.read(store.put(data).digest) == data
    assert list((tmp_path / "tmp").iterdir()) == []
