"""A processor architecture as one value. A module of this folder
describes an architecture whole: no other module holds a fact about it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from compiler.targets.caches import Caches
from compiler.targets.target import Platform, Target


@dataclass(frozen=True)
class IntegerDot:
    """An instruction that multiplies `group` integers of `left` by as many of `right` and adds them
    up, for each 32 bits of a vector.

    intrinsic: LLVM's name of it, None for a multiplication as C has it, of one integer; adds:
    whether it takes what to add them to as its first argument.
    rows: of a register tile whose accumulators, two vectors a row, stay in registers.
    scalar: whether it adds up the whole group in one general register, so that a tile has two
    columns; it takes `group` integers in a row of the depth.
    """

    intrinsic: str | None
    group: int
    left: str
    right: str
    adds: bool
    rows: int = 6
    scalar: bool = False


@dataclass(frozen=True)
class IntegerUnit:
    """An instruction, the width in bits of the vectors that it works on, and the feature (as
    /proc/cpuinfo spells it) that a processor has it with.
    """

    bits: int
    feature: str
    dot: IntegerDot


@dataclass(frozen=True)
class PairUnit:
    """An instruction that adds to each float32 of a vector the products of two neighbouring
    bfloat16 of either side; bits: of its vectors; feature: as /proc/cpuinfo spells what a processor
    has it with; intrinsic: LLVM's name of it.
    slow: the feature of processors on which two multiply-adds of float32 take less time, or None.
    """

    bits: int
    feature: str
    intrinsic: str
    slow: str | None = None


@dataclass(frozen=True)
class Registers:
    """Width in bits (0 without vectors) and count of the vector registers; fma: whether a*b+c is
    one instruction.
    """

    bits: int
    count: int
    fma: bool = True


@dataclass(frozen=True)
class Emulation:
    """How qemu, or an emulator of PCs, runs programs for the architecture.

    program: the name behind `qemu-`, None where machines of that architecture alone run programs,
    by themselves; widest: arguments for a processor with every feature that a raw target may name,
    or most of them. pcs: by Bochs's name, processors of emulated PCs for what those machines lack,
    with their features as /proc/cpuinfo spells them.
    linker: zig's triple of dynamic programs, which begin with `loader`; sysroot: where Debian's
    cross packages put a C library for them, in the folder `libraries`, and package: the one that
    adds libstdc++ to it; all None where programs are linked statically. machines: Debian's package
    with the emulator, where that emulates whole machines.
    """

    program: str | None
    widest: tuple[str, ...] | None
    linker: str | None = None
    loader: str | None = None
    sysroot: Path | None = None
    package: str | None = None
    machines: str | None = None
    folder: str = "lib"
    pcs: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def libraries(self) -> Path | None:
        """The folder of the C library of dynamic programs."""
        return self.sysroot / self.folder if self.sysroot else None


@dataclass(frozen=True)
class Board:
    """The compiler's words for programs without an operating system, whose arithmetic needs a C
    library all the same.

    library: the system whose C library it is, as zig calls it; headers: its architecture, as the
    library's folders are called. processor: the flag for a target's processor; linked: the flag for
    the one that the C library is compiled for.
    """

    library: str
    headers: str
    processor: Callable[[Target], str]
    linked: Callable[[Target], str]


@dataclass(frozen=True)
class BytePairUnit:
    """How products of bytes are added up without an instruction for four of them; bits, feature: as
    of the other units.

    multiply: multiplies unsigned bytes by signed ones and adds two neighbours up in 16 bits, which
    hold no more than 32767; add: multiplies those by others and adds two neighbours up in 32 bits;
    signs: gives bytes the signs of others, zero where those are. All are LLVM's names.
    """

    bits: int
    feature: str
    multiply: str
    add: str
    signs: str


@dataclass(frozen=True)
class Architecture:
    """A processor architecture.

    name: as `uname -m` spells it; entries: its targets in the registry, the plainest first.
    platforms: the systems that raw targets may name.
    cpus: by LLVM's name of a processor, the features that its code uses, as /proc/cpuinfo spells
    them; the first is what a raw target without `mcpu` gets. features: the same spelling, by LLVM's
    name of a feature. A raw target that asks for more cannot be checked by a loader.
    registers: of a processor and its features (both LLVM's names), never wider than those promise.
    native: the target for a machine with these features and caches; None where none is known.
    integer_dots: instructions for dot products of small integers, the fastest first; pairs:
    bfloat16 dot products; byte_pairs: of bytes, where `integer_dots` have none for four of them.
    unroll: steps of a sum that kernels take in a row between two looks at its end.
    scheduled: whether LLVM orders a kernel's instructions so that few registers hold values.
    board: of micro-controllers alone. saturating: LLVM's name of the conversion of a float32 that
    rounds and saturates, NaN to zero, to the bits of an integer; None without one.
    """

    name: str
    entries: tuple[Target, ...]
    platforms: tuple[Platform, ...]
    cpus: Mapping[str, tuple[str, ...]]
    features: Mapping[str, str]
    registers: Callable[[str, tuple[str, ...]], Registers]
    native: Callable[[frozenset[str], Caches], Target] | None = None
    integer_dots: tuple[IntegerUnit, ...] = ()
    pairs: tuple[PairUnit, ...] = ()
    byte_pairs: tuple[BytePairUnit, ...] = ()
    unroll: int = 1
    scheduled: bool = True
    emulation: Emulation | None = None
    board: Board | None = None
    saturating: str | None = None
