import mmap
from pathlib import Path

import numpy as np
import pytest

from relaxd.loader.machine import large_pages


@pytest.mark.parametrize("size", [0, 1, 4097, (1 << 24) + 3])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    written = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    (tmp_path / "file").write_bytes(written.tobytes())
    content = large_pages.read(tmp_path / "file")
    np.testing.assert_array_equal(content, written)
    assert content.ctypes.data % 4096 == 0 or not size


@pytest.mark.skipif(not large_pages.available(), reason="this kernel gives no large pages")
def test_the_memory_is_of_large_pages(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 25))
    content = large_pages.read(tmp_path / "file")
    entries = Path("/proc/self/smaps").read_text().split("VmFlags:")
    stored = next(entry for entry in entries if f"{content.ctypes.data:x}-" in entry)
    # The kernel may be out of large pages; what was asked for stands in the entry's flags.
    flags = entries[entries.index(stored) + 1].splitlines()[0].split()
    assert "hg" in flags


@pytest.mark.parametrize("size", [0, 1, 4097])
def test_zeros_can_be_written(size: int) -> None:
    zeros = large_pages.zeros_by_small_pages(size)
    np.testing.assert_array_equal(zeros, np.zeros(size, np.uint8))
    zeros[:] = 7
    assert zeros.sum(dtype=int) == 7 * size


@pytest.mark.skipif(not large_pages.available(), reason="this kernel gives no large pages")
def test_zeros_take_memory_as_they_are_written() -> None:
    size = 1 << 28
    before = _resident()
    zeros = large_pages.zeros_by_small_pages(size)
    # One byte in each large page, of which numpy's own zeros would take all.
    zeros[:: 1 << 21] = 1
    assert _resident() - before < size >> 3


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_whether_the_kernel_gives_large_pages(tmp_path: Path) -> None:
    setting = tmp_path / "enabled"
    assert not large_pages.available(setting)
    setting.write_text("always [madvise] never\n")
    assert large_pages.available(setting)
    setting.write_text("always madvise [never]\n")
    assert not large_pages.available(setting)
