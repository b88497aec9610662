"""Facts about the processor that kernels need: vectors, registers, caches and cores."""

from dataclasses import dataclass

from compiler.targets.architecture import BytePairUnit, IntegerDot
from compiler.targets.architectures import architecture_of
from compiler.targets.target import Target

__all__ = ["LINE", "IntegerDot", "VectorUnit"]

LINE = 64
"""Bytes of a cache line; where lines are longer, some are fetched twice."""

_PERMUTED = 512
"""Bits of 16 numbers of float32."""


@dataclass(frozen=True)
class VectorUnit:
    """`vector_bits` and `registers` describe the vector unit; `fma` says whether a*b+c is one
    instruction; cache sizes are bytes.

    unroll: steps of a sum in a row between two looks at its end.
    scheduled: whether instructions are ordered for registers; else all values of a step of a sum
    that are used twice are in registers at once.
    integer_dots: the instructions for products of small integers, the fastest first.
    converts_float16: whether it turns vectors of float16 into float32.
    looks_up: whether one instruction takes each lane from 16 numbers of float32, by the lowest four
    bits of a lane.
    looks_up_eight: the same from 8 numbers, by the lowest three bits.
    bfloat16_dot: LLVM's name of the bfloat16 dot product, None without one that is faster than two
    multiply-adds.
    byte_pairs: the instructions for bytes in pairs, None without them.
    """

    vector_bits: int = 128
    registers: int = 16
    fma: bool = False
    l1: int = 32 << 10
    l2: int = 256 << 10
    l3: int = 4 << 20
    unroll: int = 1
    scheduled: bool = True
    integer_dots: tuple[IntegerDot, ...] = ()
    converts_float16: bool = False
    looks_up: bool = False
    looks_up_eight: bool = False
    bfloat16_dot: str | None = None
    byte_pairs: BytePairUnit | None = None

    @classmethod
    def of(cls, target: Target) -> "VectorUnit":
        """The machine a target describes; caches the target does not state get small,
        safe sizes.
        """
        architecture = architecture_of(target.arch)
        return cls(
            vector_bits=max(target.vector_bits, 64),
            registers=max(target.vector_registers, 8),
            fma=target.fma,
            l1=target.caches.l1 or cls.l1,
            l2=target.caches.l2 or cls.l2,
            l3=target.caches.l3 or cls.l3,
            unroll=architecture.unroll if target.fma else 1,
            scheduled=architecture.scheduled,
            integer_dots=tuple(
                unit.dot
                for unit in architecture.integer_dots
                if unit.bits == target.vector_bits and unit.feature in target.isa
            ),
            converts_float16=target.arch == "aarch64" or "f16c" in target.isa,
            looks_up="avx512f" in target.isa and target.vector_bits == _PERMUTED,
            looks_up_eight="avx2" in target.isa and target.vector_bits == _PERMUTED // 2,
            bfloat16_dot=next(
                (
                    unit.intrinsic
                    for unit in architecture.pairs
                    if unit.bits == target.vector_bits
                    and unit.feature in target.isa
                    and unit.slow not in target.isa
                ),
                None,
            ),
            byte_pairs=next(
                (
                    unit
                    for unit in architecture.byte_pairs
                    if unit.bits == target.vector_bits and unit.feature in target.isa
                ),
                None,
            ),
        )

    @property
    def memory_bound(self) -> bool:
        """True if a register tile consumes weights as fast as L2 delivers them, or faster.

        Where a vector is a whole cache line, a tile of eight rows takes a line every four cycles:
        about what L2 gave one thread on Sapphire Rapids, where this was measured, and twice what L3
        gave. So weights are prefetched early and steadily, and read as few times as possible.
        """
        return self.vector_bits >= 8 * LINE

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits one vector register holds, at least 1."""
        return max(self.vector_bits // max(bits, 8), 1)
