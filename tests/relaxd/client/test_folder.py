"""A folder takes another's place whole, or nothing changes."""

from pathlib import Path

import pytest

from relaxd.client.errors import PullError
from relaxd.client.folder import replacing
from relaxd.contract.bundle.manifest import FILENAME


def list_values(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_new_folder_appears_whole(tmp_path: Path) -> None:
    with replacing(tmp_path / "deep" / "out") as fresh:
        (fresh / "model.so").write_bytes(b"new")
        assert not (tmp_path / "deep" / "out").exists()
    assert list_values(tmp_path / "deep") == ["out", "out/model.so"]


def test_an_older_bundle_is_replaced_with_nothing_left_of_it(tmp_path: Path) -> None:
    old = tmp_path / "out"
    old.mkdir()
    (old / FILENAME).write_text("{}")
    (old / "stale").write_text("")
    with replacing(old) as fresh:
        (fresh / "model.so").write_bytes(b"new")
    assert list_values(tmp_path) == ["out", "out/model.so"]


def test_a_failure_leaves_the_older_bundle(tmp_path: Path) -> None:
    old = tmp_path / "out"
    old.mkdir()
    (old / FILENAME).write_text("{}")

    def half(folder: Path) -> None:
        with replacing(folder) as fresh:
            (fresh / "half").write_text("")
            raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        half(old)
    assert list_values(tmp_path) == ["out", f"out/{FILENAME}"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_no_bundle_is_never_deleted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    if kind == "file":
        path.write_text("mine")
    else:
        path.mkdir()
        (path / "mine").write_text("")
    before = list_values(tmp_path)
    with pytest.raises(PullError, match=r"already holds other files|is a file"), replacing(path):
        pytest.fail("never entered")
    assert list_values(tmp_path) == before


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with replacing(tmp_path / "out") as fresh:
        (fresh / "a").write_text("")
    assert list_values(tmp_path) == ["out", "out/a"]
