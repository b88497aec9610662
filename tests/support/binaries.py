"""Facts about a library from its own bytes: format and machine in its headers, instructions and
attributes as far as binutils show them.
"""

import re
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from compiler.targets import ObjectFormat, Target

_MACHO_ARM64 = 0x0100000C
_COFF_X86_64 = 0x8664
_WASM_VERSION = 1
_BUILD_VERSION = 0x32
_MACHO_PLATFORMS = {1: "macOS", 2: "iOS"}
_VERSION_MIN = {0x24: "macOS", 0x25: "iOS"}
_ATTRIBUTES = ("CPU_arch", "FP_arch", "Advanced_SIMD_arch", "ABI_VFP_args")


@dataclass(frozen=True)
class Elf:
    """How ELF files name an architecture: the number in their header, and the words of `file`."""

    machine: int
    words: str
    bits: int = 64


ELF = {
    "x86_64": Elf(62, "x86-64"),
    "aarch64": Elf(183, "ARM aarch64"),
    "armv7l": Elf(40, "ARM, EABI5", bits=32),
    "cortex-m": Elf(40, "ARM, EABI5", bits=32),
    "riscv64": Elf(243, "UCB RISC-V, RVC, double-float ABI"),
    "riscv32": Elf(243, "UCB RISC-V, RVC", bits=32),
}
"""One line for each architecture of compiler/targets/architectures.py."""


def first_object(archive: bytes) -> bytes:
    """The first member of an `ar` archive that is no index."""
    offset = 8
    while offset < len(archive):
        name, size = archive[offset : offset + 16].strip(), int(archive[offset + 48 : offset + 58])
        content = archive[offset + 60 : offset + 60 + size]
        if name.startswith(b"#1/"):
            length = int(name[3:])
            name, content = content[:length].rstrip(b"\0"), content[length:]
        if not name.startswith((b"/ ", b"//", b"__.SYMDEF")) and name != b"/":
            return content
        offset += 60 + size + size % 2
    raise AssertionError("the archive is empty")


def machine_of(code: bytes) -> tuple[str, int]:
    """Format and machine number in the headers of a library or an object."""
    if code[:4] == b"\x7fELF":
        return "elf", struct.unpack_from("<H", code, 18)[0]
    if code[:4] == b"\xcf\xfa\xed\xfe":
        return "macho", struct.unpack_from("<I", code, 4)[0]
    if code[:2] == b"MZ":
        return "coff", struct.unpack_from("<H", code, struct.unpack_from("<I", code, 60)[0] + 4)[0]
    if code[:4] == b"\0asm":
        return "wasm", code[4]
    raise AssertionError(f"neither ELF, Mach-O nor PE: {code[:8]!r}")


def expected_machine(target: Target) -> tuple[str, int]:
    """The expected `machine_of` a library for the target."""
    numbers = {"macho": _MACHO_ARM64, "coff": _COFF_X86_64, "wasm": _WASM_VERSION}
    form = target.platform.object_format.value
    return form, numbers[form] if form in numbers else ELF[target.arch].machine


def code_of(library: Path, target: Target) -> bytes:
    """The library's bytes, of an archive those of its first object."""
    content = library.read_bytes()
    return first_object(content) if target.platform.archived else content


def spoken(library: Path, target: Target) -> str:
    """Run `file` on the library, of an archive's first object."""
    with tempfile.NamedTemporaryFile() as scratch:
        Path(scratch.name).write_bytes(code_of(library, target))
        return _tool("file", "-b", scratch.name).strip()


def expected_words(target: Target) -> tuple[str, ...]:
    """The words that it must contain."""
    linked = target.platform.archived
    match target.platform.object_format:
        case ObjectFormat.COFF:
            return ("PE32+ executable (DLL)", "x86-64")
        case ObjectFormat.MACHO:
            return (
                "Mach-O 64-bit arm64",
                "object" if linked else "dynamically linked shared library",
            )
        case ObjectFormat.WASM:
            return ("WebAssembly (wasm) binary module version 0x1",)
    elf = ELF[target.arch]
    return (f"ELF {elf.bits}-bit LSB {'relocatable' if linked else 'shared object'}", elf.words)


def traits(library: Path, target: Target) -> str:
    """Read the features that the code needs: an x86 library's widest registers, an ELF archive's
    attributes, a Mach-O file's platform.
    """
    if target.arch == "x86_64":
        used = re.findall(
            r"%([xyz])mm\d", _tool("objdump", "-d", "--no-show-raw-insn", str(library))
        )
        return f"{max(used)}mm" if used else "no vectors"
    if target.platform.object_format is ObjectFormat.MACHO:
        return _macho_platform(code_of(library, target))
    if not target.platform.archived:
        return ""
    attributes = dict(re.findall(r"Tag_(\w+): \"?([^\"\n]*)", _tool("readelf", "-A", str(library))))
    if "RISCV_arch" in attributes:
        return f"rv{ELF[target.arch].bits}" + "".join(
            re.findall(r"(?:rv\d\d|_)([a-z])\d+p\d", attributes["RISCV_arch"])
        )
    return ", ".join(attributes[name] for name in _ATTRIBUTES if name in attributes)


def expected_traits(target: Target) -> str:
    """The expected `traits` for the target."""
    if target.arch == "x86_64":
        return {128: "xmm", 256: "ymm", 512: "zmm"}[target.vector_bits]
    if target.arch == "armv7l":
        return "v7, VFPv4, NEONv1 with Fused-MAC, VFP registers"
    if target.arch == "riscv64":
        return "rv64imafdcv" if target.vector_bits else "rv64imafdc"
    if target.arch == "riscv32":
        return target.name
    return {"darwin": "macOS", "ios": "iOS"}.get(target.platform.os, "")


def newest_glibc(library: Path) -> tuple[int, ...]:
    """The newest version of glibc whose symbols an ELF library needs; (0,) where it needs none."""
    result = re.findall(r"GLIBC_(\d+(?:\.\d+)*)", _tool("readelf", "-V", str(library)))
    return max((tuple(map(int, version.split("."))) for version in result), default=(0,))


def _macho_platform(code: bytes) -> str:
    offset = 32
    for _ in range(struct.unpack_from("<I", code, 16)[0]):
        command, size, platform = struct.unpack_from("<III", code, offset)
        if command == _BUILD_VERSION:
            return _MACHO_PLATFORMS[platform]
        if command in _VERSION_MIN:
            return _VERSION_MIN[command]
        offset += size
    return "no platform"


def _tool(*command: str) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=True, errors="replace"
    ).stdout
