import os
from pathlib import Path

from compiler.isolation.linux.quota import disk_bytes


def test_files_count_with_their_blocks_and_empty_ones_too(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "large").write_bytes(os.urandom(1 << 20))
    (tmp_path / "empty").touch()
    assert disk_bytes([tmp_path], []) >= (1 << 20) + 2 * 4096


def test_a_removed_file_counts_while_it_is_open(tmp_path: Path) -> None:
    before = disk_bytes([tmp_path], [os.getpid()])  # what other tests of this process hold open
    with (tmp_path / "removed").open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        (tmp_path / "removed").unlink()
        assert disk_bytes([tmp_path], [os.getpid()]) >= before + (1 << 20)
    assert disk_bytes([tmp_path], [os.getpid()]) < before + (1 << 20)


def test_a_folder_that_is_gone_counts_nothing(tmp_path: Path) -> None:
    assert disk_bytes([tmp_path / "gone"], [1 << 30]) == 0
