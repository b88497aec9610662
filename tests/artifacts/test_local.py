"""Promises of the local store alone: durability through kill -9, and no leftovers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.errors import StoreFull
from artifacts.files import AHEAD, sweep, temporary
from artifacts.local import LocalStore
from relaxd.contract.canonical import digest_of

WRITER = """
import sys
from pathlib import Path
from artifacts.local import LocalStore

def chunks():
    for number in range(1000):
        yield b"%d " % number * 1000
        if number == 20:
            print("midway", flush=True)
            sys.stdin.read()

store = LocalStore(Path(sys.argv[1]))
store.put(b"finished before")
store.put(chunks())
"""


def test_a_killed_writer_leaves_nothing_half_done(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path.cwd(),
    )
    with writer:
        assert writer.stdout.readline() == b"midway\n"
        temporaries = list((tmp_path / "tmp").iterdir())
        assert len(temporaries) == 1
        LocalStore(tmp_path)
        assert list((tmp_path / "tmp").iterdir()) == temporaries, "a living writer's file was swept"
        writer.send_signal(signal.SIGKILL)
    assert writer.returncode == -signal.SIGKILL
    assert list((tmp_path / "tmp").iterdir()) == temporaries
    store = LocalStore(tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == [
        store._path(digest_of(b"finished before"))
    ]
    assert store.read(digest_of(b"finished before")) == b"finished before"


def test_a_sweep_spares_files_being_written(tmp_path):
    with temporary(tmp_path) as file:
        assert sweep(tmp_path) == 0
        assert Path(file.name).exists()
    assert list(tmp_path.iterdir()) == []


def test_putting_again_heals_a_blob_that_nobody_has_read(tmp_path):
    store = LocalStore(tmp_path)
    digest = store.put(b"content").digest
    for again in (b"content", [b"con", b"tent"]):
        store._path(digest).chmod(0o644)
        store._path(digest).write_bytes(b"rotten")
        store.put(again)
        assert store.read(digest) == b"content"


@pytest.mark.parametrize("data", [b"content", [b"con", b"tent"], b""])
def test_what_is_there_is_touched_and_not_written_again(tmp_path, monkeypatch, data):
    store = LocalStore(tmp_path)
    first = store.put(data)
    path = store._path(first.digest)
    os.utime(path, (0, 0))
    before = path.stat().st_ino
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("something was written"))
    again = store.put(data)
    assert (again, first.new, again.new) == (first, True, False)
    assert path.stat().st_ino == before
    assert path.stat().st_mtime > 0
    assert list((tmp_path / "tmp").iterdir()) == []


def test_content_is_synced_before_it_is_named_and_the_name_after(tmp_path, monkeypatch):
    store, calls = LocalStore(tmp_path), []
    real_sync, real_rename = os.fsync, os.rename
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: (calls.append(("fsync", os.readlink(f"/proc/self/fd/{fd}"))), real_sync(fd))[1],
    )
    monkeypatch.setattr(
        os,
        "rename",
        lambda old, new: (calls.append(("rename", str(old))), real_rename(old, new))[1],
    )
    path = store._path(store.put(b"content").digest)
    renamed = calls.index(next(call for call in calls if call[0] == "rename"))
    assert ("fsync", calls[renamed][1]) in calls[:renamed]
    assert ("fsync", str(path.parent)) in calls[renamed:]
    assert ("fsync", str(path.parent.parent)) in calls[:renamed], "the new shard itself must last"


def test_a_full_disk_is_a_typed_error_and_leaves_no_trace(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull, match="No space left"):
        store.put(b"content")
    assert not store.has(digest_of(b"content"))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_large_file_goes_to_the_disk_as_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, real = list[int](), os.fdatasync

    def note(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", note)
    store = LocalStore(tmp_path)
    store.put(b"x" * 100)
    assert sizes == []
    pieces = [b"x" * (AHEAD // 2)] * 5
    assert store.put(iter(pieces)).size == 5 * (AHEAD // 2)
    assert sizes == [AHEAD, 2 * AHEAD]
