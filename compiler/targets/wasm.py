"""Targets for WebAssembly: browsers, their workers, and node."""

from compiler.targets.abi import Abi
from compiler.targets.architecture import Architecture, Registers
from compiler.targets.caches import Caches
from compiler.targets.target import (
    ATOMICS,
    ObjectFormat,
    Platform,
    Runtime,
    Target,
    TargetStatus,
)

ENGINE = Platform(
    triple="wasm32-unknown-unknown-wasm",
    arch="wasm32",
    os="wasm",
    object_format=ObjectFormat.WASM,
    linker="wasm32-wasi",
    runtime=Runtime.NONE,
    abi=Abi((), 16, 128, 64 << 10, ()),
)
_PLAIN = ("+bulk-memory", "+mutable-globals", "+nontrapping-fptoint", "+sign-ext")
"""What every engine has had since 2021."""
_DEVICE = Caches(l1=32 << 10, l2=256 << 10, l3=4 << 20)


def _wasm32(name: str, isa: tuple[str, ...], *, fma: bool = False) -> Target:
    return Target(
        name=name,
        kind="llvm",
        platform=ENGINE,
        cpu="generic",
        features=(*_PLAIN, *(f"+{feature}" for feature in isa)),
        isa=isa,
        vector_bits=128 if isa else 0,
        # WebAssembly has no registers: this is what x86-64 has for vectors of 128 bits.
        vector_registers=16,
        caches=_DEVICE,
        status=TargetStatus.EXECUTED,
        fma=fma,
    )


def _registers(cpu: str, features: tuple[str, ...]) -> Registers:
    return Registers(128 if "+simd128" in features else 0, 16, "+relaxed-simd" in features)


WASM32 = Architecture(
    name="wasm32",
    entries=(
        _wasm32("wasm32", ()),
        _wasm32("wasm32-simd", ("simd128",)),
        _wasm32("wasm32-relaxed-simd", ("relaxed-simd", "simd128"), fma=True),
        _wasm32("wasm32-threads", (ATOMICS, "simd128")),
    ),
    platforms=(ENGINE,),
    cpus={"generic": ()},
    features={
        f"+{ATOMICS}": ATOMICS,
        "+simd128": "simd128",
        "+relaxed-simd": "relaxed-simd",
    },
    registers=_registers,
    # Engines compile instructions in the order that they come in, which LLVM has chosen without a
    # thought of registers.
    scheduled=False,
)
