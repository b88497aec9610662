"""The functions that code for Windows needs and Windows lacks, called on this machine."""

import ctypes
import platform
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike

from compiler import targets
from compiler.runtimes import windows
from compiler.toolchain import zig

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64's code")

CALLS = """
#include <stdlib.h>
#include <sys/mman.h>
#define EACH(name, from, to, call) \\
  void name(const from *x, to *y, long n) { for (long i = 0; i < n; ++i) y[i] = call(x[i]); }
EACH(widen, _Float16, float, __extendhfsf2)
EACH(float_to_half, float, _Float16, __truncsfhf2)
EACH(double_to_half, double, _Float16, __truncdfhf2)
EACH(float_to_bfloat, float, __bf16, __truncsfbf2)
EACH(double_to_bfloat, double, __bf16, __truncdfbf2)

/* Which pages a probe touches of a stack of so many, each a byte in `touched`, the top one last;
 * returns whether it keeps the registers. */
int probe(long bytes, long pages, unsigned char *touched) {
  long size = pages * 4096, after = bytes, kept = 77;
  /* What lies above the stack pointer is there in any program: its caller's frame. */
  char *stack = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  __asm__ volatile("movq %%rsp, %%rbx; movq %2, %%rsp; call ___chkstk_ms; movq %%rbx, %%rsp"
                   : "+a"(after), "+c"(kept) : "r"(stack + size) : "rbx", "memory", "cc");
  mincore(stack, size, touched);
  munmap(stack, size + 4096);
  return after == bytes && kept == 77;
}
"""
EDGES = [0.0, 65504, 65519.999, 65520, 65536, 2.0**-14, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25]
EDGES += [3.3895e38, 3.3961e38, 1.7e308, 2.0**-126, 2.0**-133, 2.0**-134, 1.5 * 2.0**-134, 1e-310]
EDGES += [1.00048828125, 1.00146484375, 1.00048828126, 1.00390625, 1.01171875, np.inf, np.nan]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("windows")
    source = Path(windows.__file__).with_name("windows.c")
    (folder / "calls.c").write_text(f'#include "{source}"\n{CALLS}')
    flags = ("-std=gnu17", "-O2", "-fno-builtin", "-mno-red-zone", "-fPIC", "-Werror", "-Wall")
    unit, library = folder / "calls.o", folder / "calls.so"
    zig.compile_with_zig(
        *(*flags, "-c", "-o", str(unit), str(folder / "calls.c")),
        triple=targets.resolve("native").platform.linker,
    )
    # What of the C library it calls this process has.
    zig.link_elf("-shared", "-o", str(library), str(unit))
    return ctypes.CDLL(str(library))


def call(functions: ctypes.CDLL, name: str, x: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    y = np.empty(x.shape, dtype)
    getattr(functions, name)(
        x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(x.size)
    )
    return y


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Bit for bit, where a NaN is any NaN."""
    numbers = ~np.isnan(expected.astype(np.float32))
    assert (np.isnan(actual.astype(np.float32)) == ~numbers).all()
    bits = {2: np.uint16, 4: np.uint32}[expected.itemsize]
    np.testing.assert_array_equal(actual.view(bits)[numbers], expected.view(bits)[numbers])


def test_every_half_becomes_its_float(functions: ctypes.CDLL) -> None:
    float16 = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    same(call(functions, "widen", float16, np.float32), float16.astype(np.float32))


@pytest.mark.parametrize("wide", ["float", "double"])
@pytest.mark.parametrize(("small", "dtype"), [("half", np.float16), ("bfloat", ml_dtypes.bfloat16)])
@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")
def test_numbers_become_the_nearest(
    functions: ctypes.CDLL, wide: str, small: str, dtype: type
) -> None:
    """All numbers of the narrow type, what lies halfway between them, and next to halfway."""
    random = np.random.default_rng(0)
    finite = np.arange(1 << 15, dtype=np.uint16).view(dtype).astype(np.float64)
    finite = finite[np.isfinite(finite)]
    halfway = (finite[:-1] + finite[1:]) / 2
    sampled = random.integers(0, 1 << 63, 100_000, dtype=np.uint64).view(np.float64)
    near = [np.nextafter(halfway, end) for end in (0, np.inf)]
    near += [np.nextafter(halfway.astype(np.float32), np.float32(end)) for end in (0, np.inf)]
    numbers = np.concatenate([finite, halfway, *near, sampled, EDGES])
    numbers = np.concatenate([numbers, -numbers]).astype({"float": "f4", "double": "f8"}[wide])
    expected = nearest(numbers.astype(np.float64), finite, dtype)
    same(call(functions, f"{wide}_to_{small}", numbers, dtype), expected)


def nearest(numbers: np.ndarray, finite: np.ndarray, dtype: type) -> np.ndarray:
    """By search among all numbers of the type, of which every other one is even."""
    # The first number beyond the greatest stands for infinity.
    beyond = 2 * finite[-1] - finite[-2]
    table, size = np.append(finite, beyond), np.abs(numbers)
    above = np.clip(np.searchsorted(table, size), 1, len(table) - 1)
    up, down = table[above] - size, size - table[above - 1]
    chosen = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, above - 1)
    values = np.append(finite, np.inf).astype(dtype)[chosen]
    signed = np.where(np.signbit(numbers), -values, values).astype(dtype)
    return np.where(np.isnan(numbers), np.array(np.nan, dtype), signed).astype(dtype)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 40_000, 409_600])
def test_a_stack_is_touched_page_by_page(functions: ctypes.CDLL, size: int) -> None:
    pages = 120
    touched = (ctypes.c_ubyte * pages)()
    assert functions.probe(ctypes.c_long(size), ctypes.c_long(pages), touched)
    # The top page holds what the probe itself saves.
    wanted = {
        pages - 1,
        *((pages * 4096 - step) // 4096 for step in (*range(4096, size, 4096), size) if step),
    }
    assert {page for page, seen in enumerate(touched) if seen & 1} == wanted
