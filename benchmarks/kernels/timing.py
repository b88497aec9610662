"""Times of kernels on one thread, in turns, with the processor's peak measured beside them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from benchmarks.kernels.case import Arithmetic, Case
from benchmarks.kernels.loops import multiply_loop
from benchmarks.kernels.matmuls import MATMUL
from compiler.codegen.generate import generate
from compiler.passes.framework.kernel_notes import KernelNote
from compiler.passes.manager import to_kernels, to_machine
from compiler.passes.pack.round_operands import RoundOperands
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from tests.compiler.conftest import build_module

TURN = 0.002
"""Seconds of one turn: long against the clock, short against what neighbours of a virtual machine
do.
"""


@dataclass(frozen=True)
class Measurement:
    """seconds: of one run of the kernel, turn by turn; peaks, rates: GFLOP/s and GB/s of the
    processor around them, likewise; no rates where nobody asked.
    """

    seconds: list[float]
    peaks: list[float]
    rates: list[float] = field(default_factory=list)

    @property
    def time(self) -> float:
        """The median."""
        return median(self.seconds)

    @property
    def peak(self) -> float:
        """The median of the peaks."""
        return median(self.peaks)

    @property
    def rate(self) -> float:
        """The median of the rates."""
        return median(self.rates)

    def share_of_rate(self, size: int) -> float:
        """The share of the bandwidth of the bytes that a run moves, the median over the turns."""
        moved = [size / 1e9 / seconds for seconds in self.seconds]
        return median(one / rate for one, rate in zip(moved, self.rates, strict=True))

    def share_of_peak(self, operations: int) -> float:
        """The median over the turns, each beside its own peak."""
        rates = [operations / 1e9 / seconds for seconds in self.seconds]
        return median(rate / peak for rate, peak in zip(rates, self.peaks, strict=True))

    def ratio_to(self, rhs: "Measurement") -> float:
        """The median of the ratios of times, turn by turn."""
        return median(a / b for a, b in zip(self.seconds, rhs.seconds, strict=True))


def peak_of(target: Target, arithmetic: Arithmetic = Arithmetic.FLOAT32) -> Callable[[], float]:
    """Measures the GFLOP/s of multiply-adds in this thread, for half a millisecond; those of
    float32 where the processor has no instruction for the arithmetic.
    """
    loop = multiply_loop(target, arithmetic) or multiply_loop(target, Arithmetic.FLOAT32)
    assert loop is not None
    chain, operations = loop
    rounds = 150_000
    return lambda: operations * rounds / 1e9 / _time(lambda: chain(rounds), 1)


def kernels_of(case: Case, target: Target) -> tvm.IRModule:
    """The case's graph with the loops that the compiler writes."""
    round_pass = RoundOperands(VectorUnit.of(target), {}, (MATMUL,), frozenset({MATMUL}))
    module = build_module(case.graph, dict(case.inputs))
    return to_kernels(module, target, {}, (), round_pass if case.is_bfloat16 else None)


def text_of(kernels: tvm.IRModule) -> str:
    """The loops of the kernels, in the order of their names."""
    functions = sorted(kernels.functions.items(), key=lambda item: item[0].name_hint)
    return "".join(func.script() for _, func in functions if isinstance(func, tirx.PrimFunc))


def families_of(kernels: tvm.IRModule) -> set[str]:
    """The names of the families that took the kernels."""
    functions = kernels.functions.values()
    return {KernelNote.of(func).family for func in functions if isinstance(func, tirx.PrimFunc)}


def build(case: Case, target: Target) -> Callable[[], Any]:
    """The case's graph as the compiler builds it, bound to its inputs; raises ValueError where
    another family takes its kernel.
    """
    kernels = kernels_of(case, target)
    if case.taken_by not in families_of(kernels):
        raise ValueError(f"{case.family} {case.shape}: taken by {families_of(kernels)}")
    module = to_machine(kernels, target, {})
    machine = relax.VirtualMachine(generate(module, target), tvm.cpu())
    arrays = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in case.arrays()]
    main = machine["main"]
    return lambda: main(*arrays)


def race(
    calls: Mapping[str, Callable[[], Any]],
    copies: int,
    seconds: float,
    peak: Callable[[], float],
    rate: Callable[[], float] | None = None,
) -> dict[str, Measurement]:
    """Every call for about `seconds`, turn by turn, each second turn in the opposite order.

    rate: measures GB/s of reads, which takes the caches from the calls; a call that is not timed
    fills them again.

    Times are of the thread, so that other processes on this processor do not count.
    """
    runs = {name: _runs(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    peaks: list[float] = []
    rates: list[float] = []
    end = time.perf_counter() + seconds * len(calls)
    while len(peaks) < 3 or time.perf_counter() < end:
        for name in list(calls)[:: 1 if len(peaks) % 2 else -1]:
            if rate is not None:
                calls[name]()
            times[name].append(_time(calls[name], runs[name]) / copies)
        peaks.append(peak())
        if rate is not None:
            rates.append(rate())
    return {name: Measurement(turns, peaks, rates) for name, turns in times.items()}


def race_of_threads(
    calls: Mapping[str, Callable[[], Any]], copies: int, seconds: float, threads: int
) -> dict[str, Measurement]:
    """`race` on several threads, by the wall clock; nothing is measured beside it."""
    tvm.get_global_func("runtime.config_threadpool")(1, threads)
    runs = {name: _runs(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    turns, end = 0, time.perf_counter() + seconds * len(calls)
    while turns < 3 or time.perf_counter() < end:
        for name in list(calls)[:: 1 if turns % 2 else -1]:
            started = time.perf_counter()
            for _ in range(runs[name]):
                calls[name]()
            times[name].append((time.perf_counter() - started) / runs[name] / copies)
        turns += 1
    return {name: Measurement(each, []) for name, each in times.items()}


def _runs(call: Callable[[], Any]) -> int:
    """How many calls a turn takes."""
    _time(call, 2)
    return max(int(TURN / max(_time(call, 2), 1e-9)), 1)


def _time(call: Callable[[], Any], runs: int) -> float:
    """Seconds of one of `runs` calls in a row."""
    started = time.thread_time()
    for _ in range(runs):
        call()
    return (time.thread_time() - started) / runs
