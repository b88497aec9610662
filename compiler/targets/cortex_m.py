"""Targets with ARM's micro-controllers: programs without an operating system, models in flash."""

from compiler.targets.abi import ARM_RUNTIME, INSTRUCTIONS, Abi, list_calls
from compiler.targets.architecture import (
    Architecture,
    Board,
    Emulation,
    IntegerDot,
    IntegerUnit,
    Registers,
)
from compiler.targets.caches import Caches
from compiler.targets.target import ObjectFormat, Platform, Runtime, Target, TargetStatus


def _platform(triple: str) -> Platform:
    return Platform(
        triple=triple,
        arch="cortex-m",
        os="none",
        object_format=ObjectFormat.ELF,
        linker="thumb-freestanding-eabihf",
        runtime=Runtime.NONE,
        abi=Abi((), 8, 0, 0, list_calls(*INSTRUCTIONS, *ARM_RUNTIME, heap=())),
    )


V7EM = _platform("thumbv7em-unknown-none-eabihf")
V8_1M = _platform("thumbv8.1m.main-unknown-none-eabihf")

_RAM = Caches(l1=16 << 10, l2=64 << 10, l3=0)
"""There are no caches, or small ones: what a kernel works on should be a part of the RAM."""

_REGISTERS = {
    # 32 registers of a float each, which kernels take two at a time.
    "cortex-m4": Registers(0, 16),
    "cortex-m7": Registers(0, 16),
    "cortex-m55": Registers(128, 8),
}


def _registers(cpu: str, features: tuple[str, ...]) -> Registers:
    return _REGISTERS[cpu]


def _cortex(name: str, platform: Platform, isa: tuple[str, ...], board: str) -> Target:
    return Target(
        name=name,
        kind="llvm",
        platform=platform,
        cpu=name,
        features=(),
        isa=isa,
        vector_bits=_REGISTERS[name].bits,
        vector_registers=_REGISTERS[name].count,
        caches=_RAM,
        status=TargetStatus.EMULATED,
        # TVM would warn that it does not know the width of vectors.
        llvm=(("mfloat-abi", "hard"), ("vector-width", 128)),
        emulator=("-machine", board),
    )


_PLAIN = IntegerDot(None, 1, "int16", "int16", adds=True, rows=2)
"""Weights stay bytes, which are widened as they are loaded: a quarter of the flash of floats."""

_DUAL = IntegerDot("llvm.arm.smlad", 4, "int16", "int8", adds=True, rows=2, scalar=True)
"""Two products of 16-bit halves; four bytes of weights become two words of halves first."""

_ACROSS = IntegerDot(
    "llvm.arm.mve.vmldava.v8i16", 8, "int16", "int8", adds=True, rows=2, scalar=True
)
"""Eight products of two vectors; weights are widened as they are loaded."""

_M4, _M7, _M55 = ("dsp", "fpv4-sp"), ("dsp", "fpv5-dp"), ("dsp", "fpv5-dp", "mve.fp")


def _flag(cpu: str) -> str:
    """zig knows none of these processors to have floating point, without which it passes floats as
    no kernel does.
    """
    return f"-mcpu={cpu.replace('-', '_')}+vfp4d16sp"


_BOARD = Board(
    library="thumb-linux-musleabihf",
    headers="arm",
    processor=lambda target: _flag(target.cpu),
    # All of the family run what the plainest runs.
    linked=lambda target: _flag("cortex-m4"),
)

CORTEX_M = Architecture(
    name="cortex-m",
    entries=(
        _cortex("cortex-m4", V7EM, _M4, "mps2-an386"),
        _cortex("cortex-m7", V7EM, _M7, "mps2-an500"),
        _cortex("cortex-m55", V8_1M, _M55, "mps3-an547"),
    ),
    platforms=(V7EM, V8_1M),
    cpus={"cortex-m4": _M4, "cortex-m7": _M7, "cortex-m55": _M55},
    features={},
    registers=_registers,
    integer_dots=(
        IntegerUnit(0, "dsp", _DUAL),
        IntegerUnit(0, "dsp", _PLAIN),
        IntegerUnit(128, "mve.fp", _ACROSS),
        IntegerUnit(128, "mve.fp", _PLAIN),
    ),
    emulation=Emulation("system-arm", widest=(), machines="qemu-system-arm"),
    board=_BOARD,
    saturating="llvm.arm.vcvtr",
)
