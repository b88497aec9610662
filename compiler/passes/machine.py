"""What kernels need to know about the processor: vectors, registers, caches and cores."""

from dataclasses import dataclass

from compiler.targets import Target

_PAIR_PRODUCTS = {
    128: ("sse4_1", "llvm.x86.sse2.pmadd.wd"),
    256: ("avx2", "llvm.x86.avx2.pmadd.wd"),
    512: ("avx512bw", "llvm.x86.avx512.pmaddw.d.512"),
}
"""By bits of a vector: the feature it takes, and the intrinsic. LLVM adds its result to a sum in one instruction where VNNI is there."""

_TOGETHER = {"x86_64": 4}
"""Where two hardware threads share a core its decoder feeds each at half speed, and instructions count: four steps in a row take a
fifth fewer than one. On AArch64 LLVM then loads a vector of factors for each row and runs out of registers, and so it does where
a product takes a register before it is added.
"""


@dataclass(frozen=True)
class Machine:
    """`vector_bits` and `registers` describe the vector unit; `fma` says whether a*b+c is one instruction; cache sizes are bytes.

    together: steps of a sum in a row between two looks at its end.
    pair_product: LLVM's intrinsic that multiplies pairs of 16-bit integers and adds each pair to one of 32 bits, None without one.
    """

    vector_bits: int = 128
    registers: int = 16
    fma: bool = False
    l1: int = 32 << 10
    l2: int = 256 << 10
    l3: int = 4 << 20
    together: int = 1
    pair_product: str | None = None

    @classmethod
    def of(cls, target: Target) -> "Machine":
        """The machine a target describes; caches the target does not state get small, safe sizes."""
        return cls(
            vector_bits=max(target.vector_bits, 64),
            registers=max(target.vector_registers, 8),
            fma=target.fma,
            l1=target.caches.l1 or cls.l1,
            l2=target.caches.l2 or cls.l2,
            l3=target.caches.l3 or cls.l3,
            together=_TOGETHER.get(target.arch, 1) if target.fma else 1,
            pair_product=_pair_product(target),
        )

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits one vector register holds, at least 1."""
        return max(self.vector_bits // max(bits, 8), 1)


def _pair_product(target: Target) -> str | None:
    feature, intrinsic = _PAIR_PRODUCTS.get(target.vector_bits, ("", ""))
    return intrinsic if target.arch == "x86_64" and feature in target.isa else None
