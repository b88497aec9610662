"""The C functions of docs/howto/standalone.md by which sequences share pages of a KV cache."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import relaxd
from relaxd.loader.machine.page_files import is_available
from relaxd.loader.state import State
from tests.docs.blocks import ROOT, blocks_of
from tests.support.models.decoders import GROUPS, SIZE, WORDS
from tests.support.models.paged_decoders import TOKENS, build_paged

PAGE = ROOT / "docs/howto/standalone.md"
ROW = 4 * SIZE


class Cache(ctypes.Structure):
    """`cache` of the page."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("heads", ctypes.c_size_t),
        ("plane", ctypes.c_size_t),
        ("row", ctypes.c_size_t),
        ("file", ctypes.c_int),
    )


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if not is_available():
        pytest.skip("the page's functions are for Linux")
    folder = tmp_path_factory.mktemp("pages")
    (program,) = (block.body for block in blocks_of(PAGE) if "share_tokens(" in block.body)
    (folder / "pages.c").write_text(program)
    compiler = ["cc"] if shutil.which("cc") else [sys.executable, "-m", "ziglang", "cc"]
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*compiler, *flags, "pages.c", "-o", "pages.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "pages.so"))
    library.open_cache.argtypes = (ctypes.POINTER(Cache), *[ctypes.c_size_t] * 4)
    library.share_tokens.argtypes = (ctypes.POINTER(Cache), *[ctypes.c_size_t] * 3)
    return library


def open_caches(functions: ctypes.CDLL, state: State) -> list[Cache]:
    """Lay the state's caches over memory of the page's functions."""
    caches = []
    for name, buffer in state._buffers.items():
        cache = Cache()
        assert functions.open_cache(cache, len(buffer), GROUPS, TOKENS, ROW) == 0
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * buffer.nbytes).from_address(cache.data))
        state._buffers[name] = memory.view(buffer.dtype).reshape(buffer.shape)
        caches.append(cache)
    return caches


@pytest.mark.parametrize("count", [1, 63, 64, 150])
def test_a_shared_beginning_is_that_of_a_copy(
    functions: ctypes.CDLL, tmp_path: Path, count: int
) -> None:
    model = relaxd.load(build_paged(tmp_path, "float32"), threads=1)
    states = [model.state(entries=2, capacity=TOKENS) for _ in range(2)]
    caches = open_caches(functions, states[0])
    draw = np.random.default_rng(count)
    first, second = draw.integers(0, WORDS, (1, 200)), draw.integers(0, WORDS, (2, 20))
    for state in states:
        state.step(first)
    for cache in caches:
        assert functions.share_tokens(cache, 0, 1, count) == 0
    states[0]._lengths[1] = count
    states[1].copy(0, 1, count)
    results = [state.step(second)["logits"] for state in states]
    np.testing.assert_array_equal(results[0].view(np.uint32), results[1].view(np.uint32))
    assert states[0].lengths == (220, count + 20)


def test_rows_that_fill_no_pages(functions: ctypes.CDLL) -> None:
    assert functions.open_cache(Cache(), 2, GROUPS, 100, ROW) == -1
