"""Runs programs for Linux on an emulated PC whose processor has AVX-512: Bochs, with a kernel of
our own that knows few calls.
"""

import resource
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import IO

from compiler import targets
from compiler.isolation.linux import privileges
from compiler.toolchain import zig

BOCHS = "bochs-bin"


class Processor(StrEnum):
    """Models that Bochs has: without AVX-512, with what x86-64-v4 promises and no VNNI, and with
    VNNI.
    """

    HASWELL = "corei7_haswell_4770"
    SKYLAKE_X = "corei7_skylake_x"
    ICE_LAKE = "corei7_icelake_u"


PROCESSORS = {"x86-64-v4": Processor.SKYLAKE_X, "x86-64-v4-vnni": Processor.ICE_LAKE}
"""A processor with just what the target promises, or little more."""
_GUEST = Path(__file__).with_name("guest")
_BIOS = (Path("/usr/share/bochs/BIOS-bochs-latest"), Path("/usr/share/bochs/VGABIOS-lgpl-latest"))
_SECTOR = 512
_TABLE_SECTOR = 128
_MOST = 2 << 20
_HEADING = struct.Struct("<4Q")
_FILE = struct.Struct("<216s5Q")
_COMMAND = struct.Struct("<IIQ4080s")
_ENDED = 1 << 16
_CYLINDER = 16 * 63 * _SECTOR
_TAIL = 2000
_SETTINGS = """\
config_interface: textconfig
display_library: term
plugin_ctrl: unmapped=1, biosdev=0, speaker=0, extfpuirq=0, parallel=0, gameport=0
cpu: model={model}, count=1, ips=4000000, reset_on_triple_fault=0, ignore_bad_msrs=1
memory: guest={memory}, host={memory}
romimage: file={bios}, options=fastboot
vgaromimage: file={video}
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=disk, path="{disk}", mode=flat, cylinders=0, heads=16, spt=63
boot: disk
com1: enabled=1, mode=file, dev="{serial}"
clock: sync=none
log: "{log}"
panic: action=fatal
error: action=report
info: action=ignore
debug: action=ignore
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status, 128 and the vector after an exception, None where the
    machine stopped before; clocks it took.
    """

    status: int | None
    clocks: int


@dataclass(frozen=True)
class Outcome:
    """Each command's end, the files that they wrote, and what was said on the serial port."""

    ended: tuple[Ended, ...]
    written: Mapping[str, bytes]
    printed: str


def lacking() -> str | None:
    """Why there is no such machine here; None when there is."""
    if shutil.which(BOCHS) is None or not all(path.exists() for path in _BIOS):
        return "Bochs is not installed: apt-get install bochs bochs-term bochsbios vgabios"
    return None


def run(
    processor: Processor,
    commands: Sequence[Sequence[str]],
    files: Mapping[str, Path],
    outputs: Mapping[str, int],
    *,
    seconds: int,
    memory: int = 1024,
) -> Outcome:
    """Run the commands in turn.

    files: contents of each path that there is; outputs: paths that commands may write, and how many
    bytes at most; memory in MiB.
    seconds: of processor time that the emulator has; then it is stopped, and what it ran and all
    after that have no status.
    """
    with tempfile.TemporaryDirectory(prefix="relaxd-avx512-") as folder:
        disk, serial, log, settings = (
            Path(folder, name) for name in ("disk", "serial", "log", "settings")
        )
        with disk.open("w+b") as file:
            _write_disk(file, commands, files, outputs, memory)
        bios, video = _BIOS
        settings.write_text(
            _SETTINGS.format(
                model=processor,
                memory=memory,
                bios=bios,
                video=video,
                disk=disk,
                serial=serial,
                log=log,
            )
        )
        # Where Bochs was built with its debugger, that waits to be told.
        done = subprocess.run(
            [BOCHS, "-q", "-f", str(settings)],
            check=False,
            input=b"continue\nquit\n",
            capture_output=True,
            env={"TERM": "dumb", "PATH": "/usr/bin"},
            preexec_fn=partial(_limit, seconds),
        )
        message = serial if serial.exists() and serial.stat().st_size else log
        words = (
            message.read_text(errors="replace")
            if message.exists()
            else done.stdout.decode(errors="replace")
        )
        with disk.open("rb") as file:
            return replace(_read_disk(file, len(files), len(commands)), printed=words[-_TAIL:])


def _limit(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    privileges.end_with_parent()


def _write_disk(
    disk: IO[bytes],
    commands: Sequence[Sequence[str]],
    files: Mapping[str, Path],
    outputs: Mapping[str, int],
    memory: int,
) -> None:
    table = _HEADING.size + _FILE.size * (len(files) + len(outputs)) + _COMMAND.size * len(commands)
    assert table <= _MOST, "too many files and commands"
    disk.write(_kernel())
    sector, entries = _TABLE_SECTOR + _sectors(table), []
    for path, source in files.items():
        content = source.read_bytes()
        disk.seek(sector * _SECTOR)
        disk.write(content)
        entries.append(_FILE.pack(path.encode(), sector, len(content), 0, 0, 0))
        sector += _sectors(len(content))
    for path, capacity in outputs.items():
        entries.append(_FILE.pack(path.encode(), sector, 0, capacity, 0, 0))
        sector += _sectors(capacity)
    disk.truncate(-(-sector * _SECTOR // _CYLINDER) * _CYLINDER)
    disk.seek(_TABLE_SECTOR * _SECTOR)
    disk.write(_HEADING.pack(len(entries), len(commands), memory << 20, table))
    disk.write(b"".join(entries))
    for words in commands:
        disk.write(
            _COMMAND.pack(0, len(words), 0, b"".join(word.encode() + b"\0" for word in words))
        )


def _read_disk(disk: IO[bytes], arguments: int, count: int) -> Outcome:
    disk.seek(_TABLE_SECTOR * _SECTOR)
    files, _, _, _ = _HEADING.unpack(disk.read(_HEADING.size))
    entries = [_FILE.unpack(disk.read(_FILE.size)) for _ in range(files)]
    commands = [_COMMAND.unpack(disk.read(_COMMAND.size)) for _ in range(count)]
    written = {}
    for path, sector, size, *_ in entries[arguments:]:
        disk.seek(sector * _SECTOR)
        written[path.rstrip(b"\0").decode()] = disk.read(size)
    ended = tuple(
        Ended(status & 0xFFFF if status & _ENDED else None, clocks)
        for status, _, clocks, _ in commands
    )
    return Outcome(ended, written, "")


def _sectors(size: int) -> int:
    return -(-size // _SECTOR)


@cache
def _kernel() -> bytes:
    """Boot sector and kernel, as they lie on the disk."""
    host = targets.resolve("x86-64-v2")
    bare = replace(host, platform=replace(host.platform, linker="x86_64-freestanding-none"))
    flags = (
        "-O1",
        "-std=c11",
        "-ffreestanding",
        "-fno-pic",
        "-fno-stack-protector",
        "-fno-sanitize=all",
        "-mgeneral-regs-only",
        "-g0",
    )
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "kernel"
        sources = [str(path) for path in sorted(_GUEST.iterdir()) if path.suffix in (".S", ".c")]
        script = f"-Wl,-T,{_GUEST / 'kernel.ld'}"
        zig.compile_with_zig(
            *flags,
            "-nostdlib",
            "-static",
            script,
            "-o",
            str(image),
            *sources,
            triple=bare.platform.linker,
        )
        return _loaded(image.read_bytes())


def _loaded(program: bytes) -> bytes:
    """The bytes of an ELF file for its entry and the addresses from there on."""
    entry, headers = struct.unpack_from("<QQ", program, 24)
    (count,) = struct.unpack_from("<H", program, 56)
    for index in range(count):
        kind, _, offset, address, _, size = struct.unpack_from(
            "<IIQQQQ", program, headers + 56 * index
        )
        if kind == 1 and address == entry:
            return program[offset : offset + size]
    raise AssertionError("the kernel has no segment at its entry")
