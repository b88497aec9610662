import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from compiler.toolchain.objects import KernelObjects, Objects, shrink


def key(number: int) -> str:
    return sha256(bytes([number])).hexdigest()


def left_by_a_build(folder: Path, numbers: range, size: int = 100) -> Objects:
    left = Objects(folder)
    for number in numbers:
        left.put(key(number), bytes([number]) * size)
    left.note_use([])
    return left


def path_of(objects: Objects, number: int) -> Path:
    return objects.folder / key(number)[:2] / key(number)


@pytest.fixture
def stored(tmp_path: Path) -> KernelObjects:
    return KernelObjects(tmp_path / "kernels", "tenant", 1 << 20)


def test_an_object_comes_back(tmp_path: Path) -> None:
    objects = Objects(tmp_path / "none yet")
    assert objects.get(key(1)) is None
    objects.put(key(1), b"code")
    assert objects.get(key(1)) == b"code"


def test_a_flipped_bit_is_found_and_the_object_replaced(
    stored: KernelObjects, tmp_path: Path
) -> None:
    stored.take(left_by_a_build(tmp_path / "first", range(1)).folder)
    path = path_of(stored.objects, 0)
    for offset in (0, 40, -1):
        content = bytearray(path.read_bytes())
        content[offset] ^= 1
        path.write_bytes(content)
        assert stored.objects.get(key(0)) is None
        # The build compiled it again.
        assert stored.take(left_by_a_build(tmp_path / f"then{offset}", range(1)).folder) == 1
        assert stored.objects.get(key(0)) == b"\0" * 100


def test_an_object_under_another_key_is_none(tmp_path: Path) -> None:
    objects = left_by_a_build(tmp_path, range(1))
    path_of(objects, 1).parent.mkdir(exist_ok=True)
    path_of(objects, 0).rename(path_of(objects, 1))
    assert objects.get(key(1)) is None


def test_what_is_here_and_whole_stays(stored: KernelObjects, tmp_path: Path) -> None:
    assert stored.take(left_by_a_build(tmp_path / "first", range(3)).folder) == 3
    other = Objects(tmp_path / "second")
    other.put(key(0), b"of a build that was taken over")
    assert stored.take(other.folder) == 0
    assert stored.objects.get(key(0)) == b"\0" * 100


def test_nothing_but_plain_objects_is_taken(stored: KernelObjects, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of the worker")
    left = left_by_a_build(tmp_path / "left", range(2))
    path_of(left, 0).unlink()
    path_of(left, 0).symlink_to(secret)
    shelf = path_of(left, 1).parent
    os.link(path_of(left, 1), tmp_path / "second name")
    os.mkfifo(shelf / (key(1)[:2] + "0" * 62))
    (shelf / "no key").write_bytes(b"x")
    (shelf / (key(1)[:2] + "1" * 62)).write_bytes(b"no sum")
    (left.folder / "used").unlink()
    (left.folder / "used").symlink_to(secret)
    (left.folder / "zz").symlink_to(tmp_path)
    assert stored.take(left.folder) == 0
    assert not stored.root.exists()


def test_a_build_that_left_nothing(stored: KernelObjects, tmp_path: Path) -> None:
    assert stored.take(tmp_path / "nothing") == 0


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    stored = KernelObjects(tmp_path / "kernels", "tenant", 10 * 132)
    stored.take(left_by_a_build(tmp_path / "first", range(10)).folder)
    for number in range(10):
        os.utime(path_of(stored.objects, number), (number, number))
    build = left_by_a_build(tmp_path / "second", range(10, 12))
    build.note_use([key(0), "../../etc", key(77)])
    assert stored.take(build.folder) == 2
    # Three make room for two, and one for the next.
    there = {number for number in range(12) if stored.objects.get(key(number))}
    assert there == {0, 4, 5, 6, 7, 8, 9, 10, 11}


def test_the_space_is_that_of_all_owners_and_the_objects_are_not(tmp_path: Path) -> None:
    one, other = (KernelObjects(tmp_path / "kernels", name, 15 * 132) for name in ("one", "other"))
    one.take(left_by_a_build(tmp_path / "first", range(10)).folder)
    assert other.objects.get(key(0)) is None
    other.take(left_by_a_build(tmp_path / "second", range(10)).folder)
    files = [path for path in (tmp_path / "kernels").rglob("*") if path.is_file()]
    assert len(files) == 13


def test_an_owner_is_no_path(tmp_path: Path) -> None:
    folder = KernelObjects(tmp_path, "../../etc", 1).objects.folder
    assert folder.parent == tmp_path


def test_builds_fill_at_once(stored: KernelObjects, tmp_path: Path) -> None:
    left = [left_by_a_build(tmp_path / f"build{n}", range(n, n + 8)) for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda build: stored.take(build.folder), left))
        list(pool.map(lambda limit: shrink(stored.root, limit), [500] * 8))
    assert all(path.stat().st_size == 132 for path in stored.root.rglob("*") if path.is_file())
    assert 0 < sum(stored.objects.get(key(n)) is not None for n in range(15)) <= 3
