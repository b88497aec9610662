"""Loops that do nothing but what one ceiling is of: multiply in registers, or read a buffer again
and again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir.prim import expr as prim

from benchmarks.kernels.case import Arithmetic
from benchmarks.kernels.ceilings import Read
from compiler.passes.cpu.shared.bfloats import add_dot, load_vector, with_instructions
from compiler.profile.peaks import multiply_adds
from compiler.targets import Target
from compiler.targets.vector_unit import VectorUnit
from compiler.tir.building import alloc, emit, let, serial, statements, store, vectorize
from compiler.tir.exprs import const, load

_SUMS = 12
"""Independent accumulators: enough to hide the latency of an instruction on two units."""

_STREAMS = (4, _SUMS)
"""Places at which a reading loop reads in turn."""

Loop = tuple[Callable[[int], None], int]
"""Called with its number of rounds, and the operations of one round."""


def products(target: Target, arithmetic: Arithmetic) -> Loop | None:
    """The loop of an arithmetic's best instruction, None where the processor has none of its own
    for it.
    """
    if arithmetic is Arithmetic.FLOAT32:
        return multiply_adds(target)
    unit = VectorUnit.of(target)
    step = _step_of(unit, arithmetic)
    if step is None:
        return None
    add, group = step
    dtype = "int32" if arithmetic is Arithmetic.INT8 else "float32"
    lanes = unit.lanes(32)
    run = _built(_multiplying(unit, dtype, add), target)
    given, out = (tvm.runtime.tensor(np.zeros(lanes, kind)) for kind in ("int32", dtype))
    return lambda rounds: run(given, rounds, out), 2 * group * _SUMS * lanes


def readers(target: Target) -> list[Read]:
    """Loops that read the first so many bytes of a buffer so many times, and return how many bytes
    they read each time, which are whole rounds.

    They read at several places in turn: one thread gets more from memory that way, and which number
    of places is best depends on the size.
    """
    lanes = VectorUnit.of(target).lanes(32)
    out = tvm.runtime.tensor(np.zeros(lanes, "float32"))
    held: dict[int, Any] = {}
    step = 4 * _SUMS * lanes

    def reading(run: Callable[..., None]) -> Read:
        def read(size: int, times: int) -> int:
            whole = max(size // step, 1) * step
            if whole not in held:
                held.clear()
                # Written once: memory that nobody wrote is one page of zeros.
                held[whole] = tvm.runtime.tensor(np.ones(whole // 4, "float32"))
            run(held[whole], times, out)
            return whole

        return read

    return [reading(_built(_reading(lanes, streams), target)) for streams in _STREAMS]


def _step_of(
    unit: VectorUnit, arithmetic: Arithmetic
) -> tuple[Callable[[Any, Any, int], None], int] | None:
    """What adds one vector of products to accumulator `i`, and how many products each lane adds."""
    lanes = unit.lanes(32)
    if arithmetic is Arithmetic.BFLOAT16:
        if unit.bfloat16_dot is None:
            return None
        return lambda sums, given, i: add_dot(
            sums, i * lanes, load_vector(given, const(0), lanes), load(given, [const(0)]), lanes
        ), 2
    found = [one for one in unit.integer_dots if one.adds and one.intrinsic]
    if not found or found[0].scalar:
        return None
    intrinsic, group = found[0].intrinsic, found[0].group

    def add(sums: Any, given: Any, i: int) -> None:
        place = prim.Ramp(const(i * lanes), const(1), lanes)
        numbers = load_vector(given, const(0), lanes)
        both = [tirx.reinterpret(f"int8x{group * lanes}", numbers) for _ in range(2)]
        total = load(sums, [place])
        made = tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, total, *both)
        emit(tirx.BufferStore(sums, made, [place]))

    return add, group


def _multiplying(
    unit: VectorUnit, dtype: str, add: Callable[[Any, Any, int], None]
) -> tirx.PrimFunc:
    lanes = unit.lanes(32)
    rounds = tirx.Var("rounds", "int64")
    given = tirx.decl_buffer([lanes], "int32", name="given")
    with _summing(dtype, lanes) as (out, sums, body), serial(rounds, "r"):
        for i in range(_SUMS):
            add(sums, given, i)
    return tirx.PrimFunc([given, rounds, out], with_instructions(body.stmt, unit))


def _reading(lanes: int, streams: int) -> tirx.PrimFunc:
    times, size = (tirx.Var(name, "int64") for name in ("times", "size"))
    data = tirx.decl_buffer([size], "float32", name="data")
    each = _SUMS // streams
    with _summing("float32", lanes) as (out, sums, body):
        count = let("count", size // const(_SUMS * lanes))
        with serial(times, "t"), serial(count, "r") as r:
            for i in range(_SUMS):
                first = (count * (i // each) + r) * const(each * lanes) + const(i % each * lanes)
                with vectorize(lanes) as lane:
                    at = const(i * lanes) + lane
                    store(sums, sums[at] + data[first + lane], at)
    return tirx.PrimFunc([data, times, out], body.stmt)


@contextmanager
def _summing(dtype: str, lanes: int) -> Iterator[tuple[Any, Any, Any]]:
    """The result, accumulators that start at zero, and the body, which ends by adding them up."""
    out = tirx.decl_buffer([lanes], dtype, name="out")
    with statements() as body:
        sums = alloc([_SUMS * lanes], dtype, "sums")
        for i in range(_SUMS):
            with vectorize(lanes) as lane:
                store(sums, tirx.const(0, dtype), const(i * lanes) + lane)
        yield out, sums, body
        for i in range(_SUMS):
            with vectorize(lanes) as lane:
                store(out, out[lane] + sums[const(i * lanes) + lane], lane)


def _built(func: tirx.PrimFunc, target: Target) -> Callable[..., None]:
    # Without the second attribute every sum is stored after every step, as if it might be read.
    named = func.with_attr({"global_symbol": "loop", "tirx.noalias": True})
    module = tvm.IRModule({"loop": named})
    return tvm.compile(module, target=tvm.target.Target(target.to_tvm()))["loop"]
