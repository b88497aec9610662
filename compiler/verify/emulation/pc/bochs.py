"""Starts Bochs, which emulates PCs with processors that have AVX-512."""

import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compiler.isolation.linux import privileges
from compiler.verify.emulation.pc import kernel
from compiler.verify.emulation.pc.disk import Disk

PROGRAM = "bochs-bin"
_MEMORY, _MORE_MEMORY, _MOST_FILES = 1 << 30, 2 << 30, 192 << 20
"""Bytes of memory, where files have at most so many bytes and where they have more. Bochs has no
machines with yet more, and starts these a second later.
"""
_PACKAGES = "bochs bochs-term bochsbios vgabios"
_BIOS = Path("/usr/share/bochs/BIOS-bochs-latest")
_VIDEO_BIOS = Path("/usr/share/bochs/VGABIOS-lgpl-latest")
_SCREENS = "*/bochs/plugins/libbx_term_gui.so"
_TAIL = 2000
_DISK_SLACK = 1 << 20
"""No file that the emulator writes is larger than its disk by more bytes than these."""
# A low number of instructions in a second of the machine's clock makes the BIOS's delays short.
_SETTINGS = """\
config_interface: textconfig
display_library: term
plugin_ctrl: unmapped=1, biosdev=0, speaker=0, extfpuirq=0, parallel=0, gameport=0
cpu: model={processor}, count=1, ips=4000000, reset_on_triple_fault=0, ignore_bad_msrs=1
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
    """How the program ended: its status, 128 and the vector after an exception of the processor,
    None where the machine stopped before; the end of what it printed.

    late: its seconds were over.
    """

    status: int | None
    printed: str
    late: bool = False


def explain_missing() -> str | None:
    """Why there is no such machine here; None when there is."""
    files = (_BIOS, _VIDEO_BIOS)
    screens = any(Path("/usr/lib").glob(_SCREENS))
    if _program() and screens and all(path.is_file() for path in files):
        return None
    return f"Bochs is not installed: install {_PACKAGES}"


def run(
    processor: str,
    command: Sequence[str],
    files: Sequence[Path],
    outputs: Mapping[Path, int],
    *,
    seconds: float,
) -> Ended:
    """Run the command to its end; raises Unfit where the disk's table cannot hold it.

    processor: Bochs's name of a model; files, outputs: as of a Disk; seconds: of processor time
    that the emulator has.
    """
    with tempfile.TemporaryDirectory(prefix="relaxd-pc-") as name:
        folder = Path(name)
        disk = Disk(folder / "disk", files, outputs)
        small = sum(path.stat().st_size for path in files) <= _MOST_FILES
        memory = _MEMORY if small else _MORE_MEMORY
        disk.write(kernel.image(), command, memory)
        settings = _write_settings(folder, processor, memory)
        # Where Bochs was built with its debugger, that waits for commands.
        done = subprocess.run(
            [_program() or PROGRAM, "-q", "-f", str(settings)],
            check=False,
            input=b"continue\nquit\n",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"TERM": "dumb"},
            preexec_fn=partial(_limit, seconds, disk.image.stat().st_size + _DISK_SLACK),
        )
        late = done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        status = None if late else disk.read()
        printed = _read_tail(folder / "serial")
        if status is None and not printed:
            printed = _read_tail(folder / "log")
        return Ended(status, printed, late)


def _program() -> str | None:
    return shutil.which(PROGRAM)


def _write_settings(folder: Path, processor: str, memory: int) -> Path:
    text = _SETTINGS.format(
        processor=processor,
        memory=memory >> 20,
        bios=_BIOS,
        video=_VIDEO_BIOS,
        disk=folder / "disk",
        serial=folder / "serial",
        log=folder / "log",
    )
    path = folder / "settings"
    path.write_text(text)
    return path


def _limit(seconds: float, file_bytes: int) -> None:
    """A program that prints without end fills no disk."""
    soft = max(int(seconds), 0) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    privileges.end_with_parent()


def _read_tail(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL, 0))
        return file.read().decode(errors="replace")
