"""Measures the most that this machine computes and reads, by two loops of our own."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from queue import SimpleQueue
from threading import Barrier
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from compiler import targets
from compiler.errors import UnknownTarget
from compiler.targets import Target
from compiler.targets.caches import host_caches
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, serial, statements, store, vectorize
from compiler.tir.exprs import const
from relaxd.loader.engines.threads import core_groups
from relaxd.loader.machine.topology import usable_cores

_TRIES = 5
_FLOPS = 1 << 28
"""Of one thread in one try: some milliseconds."""
_ACCUMULATORS = 12
"""Independent sums: enough to hide a multiply-add's latency of four to five cycles on two units."""
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 256 << 20
"""Of what all threads together read, which otherwise is twice the last cache."""

Loop = Callable[..., None]


@dataclass(frozen=True)
class Peaks:
    """In float32. gflops: 10^9 operations per second of all threads, a multiply-add being two;
    core_gflops: of one of them alone; gb_s: 10^9 bytes per second that all threads read from
    memory.
    """

    core_gflops: float
    gflops: float
    gb_s: float


def measured_peaks(threads: int, target: Target) -> Peaks:
    """The rates that threads on cores of their own reach here and now, the best of a few tries of
    some milliseconds each; target: what this machine is, if its own kind is not in the registry.
    """
    machine = _native_or(target)
    _, read, lanes = _loops(machine)
    tensors = [tvm.runtime.tensor(np.zeros(lanes, np.float32)) for _ in range(threads)]
    step = _ACCUMULATORS * lanes
    size = min(max(2 * host_caches().l3, _LEAST_BYTES), _MOST_BYTES) // (4 * threads * step) * step
    with _pool(threads) as pool:
        rounds = _FLOPS // (2 * step)
        chains = [partial(multiply_adds(machine)[0], rounds) for _ in tensors]
        core = _best(pool, chains[:1], 2 * step * rounds)
        every = _best(pool, chains, 2 * step * rounds)
        # Written by the thread that reads it: memory that nobody wrote is one page of zeros.
        arrays = pool.map(lambda _: tvm.runtime.tensor(np.ones(size, np.float32)), tensors)
        reads = [
            lambda data=data, out=out: read(data, out)
            for data, out in zip(arrays, tensors, strict=True)
        ]
        memory = _best(pool, reads, 4 * size)
    return Peaks(max(core, every / threads), max(core, every), memory)


def multiply_adds(target: Target) -> tuple[Callable[[int], None], int]:
    """A loop of multiply-adds in registers, called with its number of rounds, and the operations of
    one round.
    """
    compute, _, lanes = _loops(target)
    out = tvm.runtime.tensor(np.zeros(lanes, np.float32))
    return lambda rounds: compute(rounds, out), 2 * _ACCUMULATORS * lanes


def gflops_meter(threads: int, target: Target, flops: int) -> Callable[[], float]:
    """Measures the GFLOP/s of the threads together at each call, while each does `flops`."""
    pool = _pool(threads)
    loops = [multiply_adds(target) for _ in range(threads)]
    rounds = flops // loops[0][1]
    chains = [partial(loop, rounds) for loop, _ in loops]
    return lambda: _rate(pool, chains, rounds * loops[0][1])


def _pool(threads: int) -> ThreadPoolExecutor:
    """Left to the scheduler, two threads may share a core for as long as this takes."""
    groups = SimpleQueue[frozenset[int]]()
    for group in core_groups(threads, usable_cores()):
        groups.put(group)
    return ThreadPoolExecutor(
        threads, initializer=lambda: os.sched_setaffinity(0, groups.get_nowait())
    )


def _best(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], None]], work: int) -> float:
    """The best rate of a few tries."""
    return max(_rate(pool, calls, work) for _ in range(_TRIES))


def _rate(pool: ThreadPoolExecutor, calls: Sequence[Callable[[], None]], work: int) -> float:
    """10^9 units of work per second, where each of the calls does `work` at the same time."""
    start = Barrier(len(calls))

    def timed(call: Callable[[], None]) -> float:
        start.wait()
        began = time.perf_counter()
        call()
        return work / (time.perf_counter() - began)

    return sum(pool.map(timed, calls)) / 1e9


def _native_or(target: Target) -> Target:
    try:
        return targets.resolve(targets.NATIVE)
    except UnknownTarget:
        return target


@cache
def _loops(target: Target) -> tuple[Loop, Loop, int]:
    """The two loops compiled for a machine, and the lanes of its vectors."""
    lanes = VectorUnit.of(target).lanes(32)
    functions = {"compute": _compute(lanes), "read": _read(lanes)}
    module = tvm.IRModule(
        {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    )
    built = tvm.compile(module, target=tvm.target.Target(target.to_tvm()))
    return built["compute"], built["read"], lanes


def _compute(lanes: int) -> tirx.PrimFunc:
    """sums = sums * a + b, so many rounds, in registers."""
    rounds = tirx.Var("rounds", "int64")
    near, small = (tirx.const(value, "float32") for value in (0.999999, 1e-6))
    return _summing(lanes, rounds, (rounds,), lambda r, i, lane, total: total * near + small)


def _read(lanes: int) -> tirx.PrimFunc:
    """sums += data."""
    size, step = tirx.Var("size", "int64"), _ACCUMULATORS * lanes
    data = tirx.decl_buffer([size], "float32", name="data")
    return _summing(
        lanes,
        size // const(step),
        (data,),
        lambda r, i, lane, total: total + data[r * const(step) + const(i * lanes) + lane],
    )


def _summing(
    lanes: int, rounds: Any, params: tuple[Any, ...], value: Callable[..., Any]
) -> tirx.PrimFunc:
    """A loop over vectors that stay in registers, whose sum goes to the last parameter."""
    out = tirx.decl_buffer([lanes], "float32", name="out")
    with statements() as body:
        accumulators = alloc([_ACCUMULATORS * lanes], "float32", "sums")
        for i in range(_ACCUMULATORS):
            with vectorize(lanes) as lane:
                store(accumulators, out[lane], const(i * lanes) + lane)
        with serial(rounds, "r") as r:
            for i in range(_ACCUMULATORS):
                with vectorize(lanes) as lane:
                    index = const(i * lanes) + lane
                    store(accumulators, value(r, i, lane, accumulators[index]), index)
        for i in range(_ACCUMULATORS):
            with vectorize(lanes) as lane:
                store(out, out[lane] + accumulators[const(i * lanes) + lane], lane)
    return tirx.PrimFunc([*params, out], body.stmt)
