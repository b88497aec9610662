"""The machine's float32 FMA peak, measured by a loop of independent vector multiply-adds in
registers.
"""

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from relaxd.loader.threads import core_groups
from relaxd.loader.topology import usable_cores

_SOURCE = """
typedef float vector __attribute__((vector_size(WIDTH * 4)));
float chain(long rounds) {
    vector sums[LANES], one = {0}, half = {0};
    for (int lane = 0; lane < WIDTH; ++lane) { one[lane] = 0.999999f; half[lane] = 1e-6f; }
    for (int i = 0; i < LANES; ++i) sums[i] = one * (float)i;
    for (long r = 0; r < rounds; ++r) {
        #pragma clang loop unroll(full)
        for (int i = 0; i < LANES; ++i) sums[i] = __builtin_elementwise_fma(sums[i], one, half);
    }
    float total = 0;
    for (int i = 0; i < LANES; ++i) total += sums[i][0];
    return total;
}
"""
_LANES = 12
"""Independent sums: enough to hide a multiply-add's latency of four to five cycles on two units."""
_ROUNDS = 20_000_000


def peak_chain(vector_floats: int) -> Callable[[int], float]:
    """The loop, which takes its number of rounds; each is `operations_of(vector_floats)`."""
    with TemporaryDirectory(prefix="peak-") as folder:
        source, library = Path(folder) / "peak.c", Path(folder) / "peak.so"
        source.write_text(_SOURCE)
        # For Intel's servers clang otherwise halves vectors of 512 bits, and so the peak.
        width = f"-mprefer-vector-width={32 * vector_floats}"
        flags = ["-O3", "-march=native", width, "-shared", "-fPIC"]
        defines = [f"-DWIDTH={vector_floats}", f"-DLANES={_LANES}"]
        command = [sys.executable, "-m", "ziglang", "cc", *flags, *defines]
        subprocess.run([*command, source, "-o", library], check=True, capture_output=True)
        chain = ctypes.CDLL(str(library)).chain
    chain.argtypes, chain.restype = [ctypes.c_long], ctypes.c_float
    return chain


def operations_of(vector_floats: int) -> int:
    """Multiplications and additions of one round of the loop."""
    return 2 * _LANES * vector_floats


def peak_meter(threads: int, vector_floats: int) -> Callable[[], float]:
    """Measures the GFLOP/s of `threads` threads together, for some 40 ms a call; vectors of
    `vector_floats` lanes.
    """
    chain = peak_chain(vector_floats)
    work = operations_of(vector_floats) * _ROUNDS * threads
    # Left to the scheduler, two threads of a fresh pool may share a processor for as long as this
    # takes.
    places = SimpleQueue[frozenset[int]]()
    for group in core_groups(threads, usable_cores()):
        places.put(group)
    pool = ThreadPoolExecutor(threads, initializer=lambda: os.sched_setaffinity(0, places.get()))
    return lambda: work / _seconds(pool, chain, threads) / 1e9


def peak_gflops(threads: int, vector_floats: int) -> float:
    """The best of twenty measurements: a host that moves virtual processors about may run two of
    them on one core for a while.
    """
    measure = peak_meter(threads, vector_floats)
    return max(measure() for _ in range(20))


def _seconds(pool: ThreadPoolExecutor, chain: Callable[[int], float], threads: int) -> float:
    started = time.perf_counter()
    list(pool.map(chain, [_ROUNDS] * threads))
    return time.perf_counter() - started
