from pathlib import Path

import pytest

from compiler.targets.caches import Caches, read_caches


def write_cache(folder: Path, index: int, level: int, kind: str, size: str) -> None:
    entry = folder / f"index{index}"
    entry.mkdir()
    for name, text in (("level", str(level)), ("type", kind), ("size", size)):
        (entry / name).write_text(text + "\n")


def test_caches_come_in_bytes(tmp_path: Path) -> None:
    for index, entry in enumerate(
        [
            (1, "Data", "48K"),
            (1, "Instruction", "64K"),
            (2, "Unified", "2M"),
            (3, "Unified", "32768K"),
        ]
    ):
        write_cache(tmp_path, index, *entry)
    assert read_caches(tmp_path) == Caches(48 << 10, 2 << 20, 32 << 20)


@pytest.mark.parametrize("folder", ["missing", "."])
def test_a_machine_that_shows_no_caches_gets_small_ones(tmp_path: Path, folder: str) -> None:
    assert read_caches(tmp_path / folder) == Caches(32 << 10, 512 << 10, 8 << 20)
