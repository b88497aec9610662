"""The disk of the emulated PC, whose every byte the machine may have written."""

from pathlib import Path

import pytest

from compiler.verify.emulation.pc.disk import Disk, Unfit

TABLE = 128 * 512
HEADING = FILE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    (tmp_path / "kernel").write_bytes(b"kernel")
    (tmp_path / "in").write_bytes(bytes(range(200)) * 3)
    written = Disk(
        tmp_path / "disk", [tmp_path / "in"], {tmp_path / "a": 700, tmp_path / "b": 1000}
    )
    written.write(tmp_path / "kernel", ["program", "word"], 1 << 30)
    return written


def patch(disk: Disk, position: int, value: int) -> None:
    with disk.image.open("r+b") as file:
        file.seek(position)
        file.write(value.to_bytes(8, "little"))


def test_a_machine_that_did_nothing(disk: Disk) -> None:
    assert disk.read() is None
    assert [path.read_bytes() for path in disk.outputs] == [b"", b""]


def test_a_status_and_sizes(disk: Disk) -> None:
    patch(disk, TABLE + 32, 1 << 16 | 300)
    patch(disk, TABLE + HEADING + 2 * FILE + 4056 + 8, 3)
    assert disk.read() == 300 & 255
    assert [path.stat().st_size for path in disk.outputs] == [0, 3]


@pytest.mark.parametrize("size", [701, 1 << 40, (1 << 64) - 1])
def test_sizes_and_sectors_that_the_machine_makes_up(disk: Disk, size: int) -> None:
    for field in range(5):
        patch(disk, TABLE + HEADING + FILE + 4056 + 8 * field, size)
        patch(disk, TABLE + 8 * field, size)
    disk.read()
    assert [path.stat().st_size for path in disk.outputs] == [700, 0]
    assert next(iter(disk.outputs)).read_bytes() == bytes(700)


def test_paths_have_an_end(tmp_path: Path) -> None:
    (tmp_path / "kernel").write_bytes(b"kernel")
    long = tmp_path.joinpath(*["x" * 100] * 50)
    with pytest.raises(Unfit, match=r"path of x+ is too long"):
        Disk(tmp_path / "disk", [], {long: 1}).write(tmp_path / "kernel", ["program"], 1 << 30)
