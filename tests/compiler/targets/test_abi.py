"""Machine code of every kind of kernel keeps to what its platform's description says."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from compiler import compile_model, targets
from compiler.targets import ObjectFormat, Target
from compiler.toolchain import zig
from tests.support.binaries import expected_traits, traits
from tests.support.models.kernel_kinds import DIMS, kernel_kinds
from tests.support.servers import missing

pytestmark = pytest.mark.slow

_IN_EVERY_RUN = ("android-arm64",)
"""The others run with `make long`."""
_CODE = [
    target
    for target in targets.registry()
    if target.device is None
    and target.name != targets.NATIVE
    and target.platform.object_format is not ObjectFormat.WASM
]
_BELOW = {
    "x86_64": r"(?<!lea[lq]\t)-(0x[0-9a-f]+)\(%rsp[,)]",
    "aarch64": r"\[sp, #-(\d+)\](?!!)",
    "armv7l": r"\[sp, #-(\d+)\](?!!)",
    "cortex-m": r"\[sp, #-(\d+)\](?!!)",
    "riscv64": r"-(\d+)\(sp\)",
    "riscv32": r"-(\d+)\(sp\)",
}
"""What an instruction accesses below the stack pointer."""
_MOVES = {
    "aarch64": r"(?:sub|add)\s+sp, sp, #(\d+)|\[sp, #-?(\d+)\]!|\[sp\], #(\d+)",
    "riscv64": r"addi\s+sp, sp, -?(\d+)",
    "riscv32": r"addi\s+sp, sp, -?(\d+)",
}
"""By how much an instruction moves the stack pointer, where each one shows it."""


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, marks=() if target.name in _IN_EVERY_RUN else pytest.mark.long)
        for target in _CODE
    ],
    ids=lambda target: target.name,
)
def test_code_keeps_to_the_description(target: Target, tmp_path: Path) -> None:
    options = {"verify": False, "profile": False}
    manifest = compile_model(
        kernel_kinds(), output=tmp_path / "out", target=target.name, dims=DIMS, options=options
    )
    library = tmp_path / "out" / manifest.library
    assert target.platform.bare or traits(library, target) == expected_traits(target)
    code, abi = _disassemble(library, target), target.platform.abi
    assert len(code) > 5000
    assert _reserved(code, abi.reserved) == []
    assert _deepest(code, _BELOW[target.arch]) <= abi.red_zone
    assert [line for line in code if _moves_off(line, target)] == []
    undefined = set(_undefined(library, target))
    assert undefined, "kernels of this model call mathematics"
    assert sorted(name for name in undefined if not _is_listed(name, abi.calls)) == []
    if target.name == "rv32imafc":
        assert not [name for name in undefined if re.fullmatch(r"__(add|sub|mul|div)sf3", name)]
    segments = list(_segments(library, target, tmp_path))
    assert all(size % abi.page == 0 for size in segments if abi.page)
    assert bool(segments) == bool(abi.page)


def test_registers_are_found_where_they_are_used() -> None:
    code = ["asr\tx18, x11, #2", "str\tw18, [sp, #240]", "bl\t0x10 <x18>", "ldr\tx8, [x1]"]
    assert _reserved([line.split("<")[0] for line in code], ("x18", "w18")) == code[:2]
    assert (
        _deepest(["movq\t%rax, -0x88(%rsp)", "leaq\t-0x100(%rsp), %rsp"], _BELOW["x86_64"]) == 136
    )
    assert _moves_off("sub\tsp, sp, #24", targets.resolve("aarch64"))


def test_llvm_reads_every_triple_as_it_is_meant() -> None:
    """With fewer parts, it takes the system for the vendor and falls back to its defaults."""
    for target in _CODE:
        parts = target.triple.split("-")
        assert len(parts) == (3 if parts[1] == "apple" else 4), target.triple


def _disassemble(library: Path, target: Target) -> list[str]:
    """The instructions, without the names that LLVM writes behind addresses."""
    features = f"--mattr={','.join(target.features)}"
    printed = _run("llvm-objdump", "-d", "--no-show-raw-insn", features, str(library))
    lines = (re.match(r"\s*[0-9a-f]+:\s+(\S.*)", line) for line in printed.splitlines())
    return [line.group(1).partition("<")[0] for line in lines if line]


def _reserved(code: list[str], registers: tuple[str, ...]) -> list[str]:
    word = re.compile(rf"\b({'|'.join(registers)})\b", re.IGNORECASE) if registers else None
    return [line for line in code if word and word.search(line)]


def _deepest(code: list[str], below: str) -> int:
    accesses = (re.search(below, line) for line in code)
    return max((int(access.group(1), 0) for access in accesses if access), default=0)


def _moves_off(line: str, target: Target) -> bool:
    """True if the instruction takes the stack pointer off its alignment."""
    moved = re.search(_MOVES[target.arch], line) if target.arch in _MOVES else None
    distance = int(next(filter(None, moved.groups()), "0")) if moved else 0
    return distance % target.platform.abi.stack != 0


def _undefined(library: Path, target: Target) -> Iterator[str]:
    """The names, as C has them, of what a library calls of its host."""
    if target.platform.object_format is ObjectFormat.COFF:
        printed = _run("llvm-readobj", "--coff-imports", str(library))
        yield from re.findall(r"Symbol: (\S+)", printed)
        return
    dynamic = [] if target.platform.archived else ["-D"]
    macho = target.platform.object_format is ObjectFormat.MACHO
    words = _run("llvm-nm", "-g", *([] if macho else dynamic), str(library)).splitlines()
    defined = {word.split()[2] for word in words if len(word.split()) == 3}
    for word in words:
        name = word.split()[-1] if re.match(r"\s+[Uw] ", word) else ""
        if name and name not in defined and name != "dyld_stub_binder":
            yield name.partition("@")[0].removeprefix("_" if macho else "")


def _is_listed(name: str, calls: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in calls)


def _segments(library: Path, target: Target, folder: Path) -> Iterator[int]:
    """Where the segments of the library begin that a loader maps: of an archive those of a library
    that is linked from it, which shows that its code can lie anywhere, too.
    """
    form, page = target.platform.object_format, target.platform.abi.page
    if target.platform.bare:
        return
    if target.platform.archived and form is ObjectFormat.ELF:
        linked, size = folder / "linked.so", f"max-page-size={page}"
        zig.link_elf(
            *("-shared", "-z", "text", "-z", size, "-o", str(linked)),
            *("--whole-archive", str(library)),
        )
        library = linked
    if form is ObjectFormat.ELF:
        printed = _run("llvm-readelf", "-lW", str(library))
        yield from (int(size, 0) for size in re.findall(r"LOAD .* (0x[0-9a-f]+)\n", printed))
    elif form is ObjectFormat.COFF:
        printed = _run("llvm-readobj", "--file-headers", str(library))
        yield from map(int, re.findall(r"SectionAlignment: (\d+)", printed))
    elif target.platform.archived:
        yield page  # Apple's linker takes no other.
    else:
        printed = _run("llvm-objdump", "--macho", "--private-headers", str(library))
        yield from (int(address, 0) for address in re.findall(r"vmaddr (0x[0-9a-f]+)", printed))


def _run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        missing(command[0], "apt-get install llvm")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
