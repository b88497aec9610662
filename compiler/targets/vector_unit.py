"""What kernels need to know about the processor: vectors, registers, caches and cores."""

from dataclasses import dataclass

from compiler.targets.target import Target


@dataclass(frozen=True)
class IntegerProduct:
    """An instruction that multiplies `group` integers of `left` by as many of `right` and adds them
    up, for each 32 bits of a vector.

    intrinsic: LLVM's name of it; adds: whether it takes what to add them to as its first argument.
    """

    intrinsic: str
    group: int
    left: str
    right: str
    adds: bool


_INTEGER_PRODUCTS = (
    (
        "x86_64",
        512,
        "avx512_vnni",
        IntegerProduct("llvm.x86.avx512.vpdpbusd.512", 4, "uint8", "int8", True),
    ),
    (
        "x86_64",
        256,
        "avx_vnni",
        IntegerProduct("llvm.x86.avx512.vpdpbusd.256", 4, "uint8", "int8", True),
    ),
    (
        "aarch64",
        128,
        "asimddp",
        IntegerProduct("llvm.aarch64.neon.sdot.v4i32.v16i8", 4, "int8", "int8", True),
    ),
    (
        "x86_64",
        512,
        "avx512bw",
        IntegerProduct("llvm.x86.avx512.pmaddw.d.512", 2, "int16", "int16", False),
    ),
    ("x86_64", 256, "avx2", IntegerProduct("llvm.x86.avx2.pmadd.wd", 2, "int16", "int16", False)),
    ("x86_64", 128, "sse4_1", IntegerProduct("llvm.x86.sse2.pmadd.wd", 2, "int16", "int16", False)),
)
"""By architecture, bits of a vector and the feature it takes, the fastest first."""

_TOGETHER = {"x86_64": 4}
"""Where two hardware threads share a core its decoder feeds each at half speed, and instructions
count: four steps in a row take a fifth fewer than one. On AArch64 LLVM then loads a vector of
factors for each row and runs out of registers, and so it does where a product takes a register
before it is added.
"""


@dataclass(frozen=True)
class VectorUnit:
    """`vector_bits` and `registers` describe the vector unit; `fma` says whether a*b+c is one
    instruction; cache sizes are bytes.

    together: steps of a sum in a row between two looks at its end.
    integer_products: the instructions for products of small integers, the fastest first.
    """

    vector_bits: int = 128
    registers: int = 16
    fma: bool = False
    l1: int = 32 << 10
    l2: int = 256 << 10
    l3: int = 4 << 20
    together: int = 1
    integer_products: tuple[IntegerProduct, ...] = ()

    @classmethod
    def of(cls, target: Target) -> "VectorUnit":
        """The machine a target describes; caches the target does not state get small,
        safe sizes.
        """
        return cls(
            vector_bits=max(target.vector_bits, 64),
            registers=max(target.vector_registers, 8),
            fma=target.fma,
            l1=target.caches.l1 or cls.l1,
            l2=target.caches.l2 or cls.l2,
            l3=target.caches.l3 or cls.l3,
            together=_TOGETHER.get(target.arch, 1) if target.fma else 1,
            integer_products=tuple(
                product
                for arch, bits, feature, product in _INTEGER_PRODUCTS
                if (arch, bits) == (target.arch, target.vector_bits) and feature in target.isa
            ),
        )

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits one vector register holds, at least 1."""
        return max(self.vector_bits // max(bits, 8), 1)
