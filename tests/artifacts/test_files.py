"""Files appear whole or not at all; a sweep takes what dead writers left, and nothing else."""

import os
from pathlib import Path

import pytest

from artifacts.errors import StorageFailed
from artifacts.files import commit, ensure_folder, storage_errors, sweep, temporary


def test_a_committed_file_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("old")
    with temporary(tmp_path) as file:
        file.write(b"new")
        commit(file, tmp_path / "out" / "file")
    assert (tmp_path / "out" / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


def test_what_is_not_committed_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> None:
        with temporary(tmp_path) as file:
            file.write(b"half")
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        broken()
    assert os.listdir(tmp_path) == []


def test_a_sweep_takes_orphans_and_leaves_the_living(tmp_path: Path) -> None:
    (tmp_path / "orphan").write_text("of a writer that was killed")
    with temporary(tmp_path) as file:
        file.write(b"still writing")
        assert sweep(tmp_path) == 1
        assert Path(file.name).exists()
        commit(file, tmp_path / "done" / "file")
    assert (tmp_path / "done" / "file").read_bytes() == b"still writing"


def test_folders_are_made_with_their_parents(tmp_path: Path) -> None:
    ensure_folder(tmp_path / "a" / "b")
    ensure_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_the_systems_errors_are_typed() -> None:
    with pytest.raises(StorageFailed, match=r"cannot write: .*No space") as caught:  # noqa: SIM117
        with storage_errors("cannot write"):
            raise OSError(28, "No space left on device")
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(KeyError), storage_errors("x"):
        raise KeyError
