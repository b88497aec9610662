"""The loops that measure the machine do what they are taken to do."""

import threading

import numpy as np
import pytest
import tvm

from compiler import targets
from compiler.profile import peaks
from compiler.profile.peaks import _ACCUMULATORS, _loops, measured_peaks

NATIVE = targets.resolve("native")


def test_the_loops_compute_what_they_count() -> None:
    compute, read, lanes = _loops(NATIVE)
    out = tvm.runtime.tensor(np.zeros(lanes, np.float32))
    compute(1000, out)
    # Each of the sums approaches b / (1 - a) from 0, and all of them are added.
    one = 0.0
    for _ in range(1000):
        one = one * 0.999999 + 1e-6
    np.testing.assert_allclose(out.numpy(), _ACCUMULATORS * one, rtol=1e-4)
    data = np.arange(4 * _ACCUMULATORS * lanes, dtype=np.float32)
    out = tvm.runtime.tensor(np.zeros(lanes, np.float32))
    read(tvm.runtime.tensor(data), out)
    np.testing.assert_allclose(out.numpy(), data.reshape(-1, lanes).sum(0), rtol=1e-5)


def test_all_threads_are_no_slower_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(peaks, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(peaks, "_FLOPS", 1 << 22)
    before = threading.active_count()
    measured = measured_peaks(2, NATIVE)
    assert 0 < measured.core_gflops <= measured.gflops
    assert measured.gb_s > 0
    assert threading.active_count() == before
