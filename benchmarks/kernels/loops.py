"""Loops that measure one ceiling each: they multiply in registers, or read a buffer repeatedly."""

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

_ACCUMULATORS = 12
"""Independent accumulators: enough to hide the latency of an instruction on two units."""

_STREAMS = (4, _ACCUMULATORS)
"""Numbers of streams that a reading loop alternates between."""

Loop = tuple[Callable[[int], None], int]
"""Called with its number of rounds, and the operations of one round."""


def multiply_loop(target: Target, arithmetic: Arithmetic) -> Loop | None:
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
    run = _compile(_multiply_body(unit, dtype, add), target)
    operand, out = (tvm.runtime.tensor(np.zeros(lanes, kind)) for kind in ("int32", dtype))
    return lambda rounds: run(operand, rounds, out), 2 * group * _ACCUMULATORS * lanes


def readers(target: Target) -> list[Read]:
    """Loops that read so many bytes of a buffer so many times, and return the bytes of one time,
    which are full rounds.

    They alternate between several streams, which reads memory faster with one thread; the best
    number of streams depends on the size.
    """
    lanes = VectorUnit.of(target).lanes(32)
    out = tvm.runtime.tensor(np.zeros(lanes, "float32"))
    buffers: dict[int, Any] = {}
    step = 4 * _ACCUMULATORS * lanes

    def make_reader(run: Callable[..., None]) -> Read:
        def read(size: int, times: int) -> int:
            total = max(size // step, 1) * step
            if total not in buffers:
                buffers.clear()
                # Written once: memory that nobody wrote is one page of zeros.
                buffers[total] = tvm.runtime.tensor(np.ones(total // 4, "float32"))
            run(buffers[total], times, out)
            return total

        return read

    return [make_reader(_compile(_read_body(lanes, streams), target)) for streams in _STREAMS]


def _step_of(
    unit: VectorUnit, arithmetic: Arithmetic
) -> tuple[Callable[[Any, Any, int], None], int] | None:
    """(function that emits a multiply-accumulate of accumulator `i`, multiplications of each
    lane).
    """
    lanes = unit.lanes(32)
    if arithmetic is Arithmetic.BFLOAT16:
        if unit.bfloat16_dot is None:
            return None
        return lambda acc, operand, i: add_dot(
            acc, i * lanes, load_vector(operand, const(0), lanes), load(operand, [const(0)]), lanes
        ), 2
    instructions = [each for each in unit.integer_dots if each.adds and each.intrinsic]
    if not instructions or instructions[0].scalar:
        return None
    intrinsic, group = instructions[0].intrinsic, instructions[0].group

    def add(acc: Any, operand: Any, i: int) -> None:
        indices = prim.Ramp(const(i * lanes), const(1), lanes)
        numbers = load_vector(operand, const(0), lanes)
        both = [tirx.reinterpret(f"int8x{group * lanes}", numbers) for _ in range(2)]
        total = load(acc, [indices])
        result = tirx.call_llvm_pure_intrin(f"int32x{lanes}", intrinsic, total, *both)
        emit(tirx.BufferStore(acc, result, [indices]))

    return add, group


def _multiply_body(
    unit: VectorUnit, dtype: str, add: Callable[[Any, Any, int], None]
) -> tirx.PrimFunc:
    lanes = unit.lanes(32)
    rounds = tirx.Var("rounds", "int64")
    operand = tirx.decl_buffer([lanes], "int32", name="given")
    with _accumulate(dtype, lanes) as (out, acc, body), serial(rounds, "r"):
        for i in range(_ACCUMULATORS):
            add(acc, operand, i)
    return tirx.PrimFunc([operand, rounds, out], with_instructions(body.stmt, unit))


def _read_body(lanes: int, streams: int) -> tirx.PrimFunc:
    times, size = (tirx.Var(name, "int64") for name in ("times", "size"))
    data = tirx.decl_buffer([size], "float32", name="data")
    each = _ACCUMULATORS // streams
    with _accumulate("float32", lanes) as (out, acc, body):
        count = let("count", size // const(_ACCUMULATORS * lanes))
        with serial(times, "t"), serial(count, "r") as r:
            for i in range(_ACCUMULATORS):
                first = (count * (i // each) + r) * const(each * lanes) + const(i % each * lanes)
                with vectorize(lanes) as lane:
                    index = const(i * lanes) + lane
                    store(acc, acc[index] + data[first + lane], index)
    return tirx.PrimFunc([data, times, out], body.stmt)


@contextmanager
def _accumulate(dtype: str, lanes: int) -> Iterator[tuple[Any, Any, Any]]:
    """The result, accumulators that start at zero, and the body, which ends by adding them up."""
    out = tirx.decl_buffer([lanes], dtype, name="out")
    with statements() as body:
        acc = alloc([_ACCUMULATORS * lanes], dtype, "sums")
        for i in range(_ACCUMULATORS):
            with vectorize(lanes) as lane:
                store(acc, tirx.const(0, dtype), const(i * lanes) + lane)
        yield out, acc, body
        for i in range(_ACCUMULATORS):
            with vectorize(lanes) as lane:
                store(out, out[lane] + acc[const(i * lanes) + lane], lane)


def _compile(func: tirx.PrimFunc, target: Target) -> Callable[..., None]:
    # Without the second attribute every sum is stored after every step, as if it might be read.
    named = func.with_attr({"global_symbol": "loop", "tirx.noalias": True})
    module = tvm.IRModule({"loop": named})
    return tvm.compile(module, target=tvm.target.Target(target.to_tvm()))["loop"]
