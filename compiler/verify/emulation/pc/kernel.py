"""Builds the kernel of the emulated PC with zig, once, into the compiler's cache."""

import struct
import tempfile
from pathlib import Path

from compiler.toolchain import build, zig

_GUEST = Path(__file__).with_name("guest")
_TRIPLE = "x86_64-freestanding-none"
_FLAGS = (
    "-O1",
    "-std=c11",
    "-ffreestanding",
    "-fno-pic",
    "-fno-stack-protector",
    # Vector registers are the program's.
    "-mgeneral-regs-only",
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-nostdlib",
    "-static",
)
_PROGRAM_HEADER = struct.Struct("<IIQQQQ")
_PROGRAM_HEADER_BYTES, _LOADED = 56, 1


def image() -> Path:
    """The boot sector and the kernel, as they lie at the start of a disk; raises LinkError."""
    sources = sorted(path for path in _GUEST.iterdir() if path.is_file())
    recipe = build.digest_of(_FLAGS, *sources)
    return build.build_once(Path("pc", recipe, "kernel"), _build)


def _build(output: Path) -> None:
    sources = sorted(path for path in _GUEST.iterdir() if path.suffix in (".S", ".c"))
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "kernel")
        script = f"-Wl,-T,{_GUEST / 'kernel.ld'}"
        zig.compile_with_zig(
            *(*_FLAGS, script, "-o", str(program), *map(str, sources)), triple=_TRIPLE
        )
        output.write_bytes(_segment_at_entry(program.read_bytes()))


def _segment_at_entry(program: bytes) -> bytes:
    """The bytes of an ELF program from its entry's address on."""
    entry, headers = struct.unpack_from("<QQ", program, 24)
    (count,) = struct.unpack_from("<H", program, 56)
    for index in range(count):
        kind, _, offset, address, _, size = _PROGRAM_HEADER.unpack_from(
            program, headers + _PROGRAM_HEADER_BYTES * index
        )
        if kind == _LOADED and address == entry:
            return program[offset : offset + size]
    raise AssertionError("the kernel has no segment at its entry")
