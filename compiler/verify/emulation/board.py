"""The boards that qemu emulates, and the program that runs a library on one."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from compiler.errors import LinkError
from compiler.link import header
from compiler.runtimes import boards
from compiler.targets import Target
from compiler.targets.architectures import board_of
from compiler.toolchain import zig
from compiler.verify.emulation.emulator import Emulator

_SOURCE = Path(__file__).with_suffix(".c")
_SCRIPT = Path(__file__).with_suffix(".ld")
_HOOKS = _SOURCE.with_suffix(".h")
_MAIN = _SOURCE.with_name("standalone.c")
_FULL = "will not fit in region"


@dataclass(frozen=True)
class Board:
    """mhz: of the clock that counts, None where the processor counts itself; regions: what memory
    there is, as a linker takes it.
    """

    mhz: int | None
    regions: str


_MPS2 = """\
MEMORY {{
  code : ORIGIN = 0, LENGTH = 4M
  ram : ORIGIN = 0x20000000, LENGTH = 4M
  constants : ORIGIN = {0:#x}, LENGTH = 8M
  heap : ORIGIN = {0:#x} + 8M, LENGTH = 8M
}}
"""
_MPS3 = """\
MEMORY {
  code : ORIGIN = 0, LENGTH = 512K
  ram : ORIGIN = 0x20000000, LENGTH = 512K
  constants : ORIGIN = 0x60000000, LENGTH = 64M
  heap : ORIGIN = 0x64000000, LENGTH = 64M
}
"""
_VIRT = """\
MEMORY {
  code : ORIGIN = 0x80000000, LENGTH = 16M
  ram : ORIGIN = 0x81000000, LENGTH = 16M
  constants : ORIGIN = 0x82000000, LENGTH = 48M
  heap : ORIGIN = 0x85000000, LENGTH = 48M
}
"""
BOARDS = {
    "mps2-an386": Board(25, _MPS2.format(0x21000000)),
    "mps2-an500": Board(25, _MPS2.format(0x60000000)),
    "mps3-an547": Board(32, _MPS3),
    "virt": Board(None, _VIRT),
}


def name_of(target: Target) -> str:
    """The board with the target's processor, as the emulator calls it."""
    assert target.emulator is not None
    return target.emulator[1]


def command(emulator: Emulator, program: Path, *arguments: str) -> list[str]:
    """Runs the program on the board; its files are those of the working directory, and an
    instruction takes a nanosecond of the board's clock.
    """
    semihosting = ",".join(f"arg={word}" for word in ("model", *arguments))
    return [
        *(*emulator.command, "-display", "none", "-monitor", "none"),
        *("-serial", "none", "-accel", "tcg,tb-size=32", "-icount", "shift=0"),
        *("-semihosting-config", f"enable=on,target=native,{semihosting}", "-kernel", str(program)),
    ]


def build(
    bundle: Path, prefix: str, target: Target, output: Path, main: Path = _MAIN
) -> str | None:
    """Write the program for the bundle to `output`; gives why the board cannot hold it, if so.
    Raises LinkError.

    prefix: of the functions of the bundle's library; main: the source that calls them.
    """
    board, words = BOARDS[name_of(target)], board_of(target)
    clock = () if board.mhz is None else (f"-DBOARD_MHZ={board.mhz}",)
    with tempfile.TemporaryDirectory() as workspace:
        script = Path(workspace, "board.ld")
        script.write_text(board.regions + _SCRIPT.read_text())
        objects = [Path(workspace, "board.o"), Path(workspace, "main.o")]
        for source, compiled in zip((_SOURCE, main), objects, strict=True):
            zig.compile_with_zig(
                *("-O1", "-fno-builtin", "-fno-pic", "-fno-stack-protector", "-c"),
                *("-include", str(bundle / header.FILENAME), f"-DP={prefix}", f"-I{bundle}"),
                *(*clock, "-DBEGIN=board_begin", "-DEND=board_end"),
                *(words.processor(target), "-include", str(_HOOKS)),
                *("-o", str(compiled), str(source)),
                triple=words.library,
            )
        return _link(target, output, script, [*objects, bundle / target.platform.library])


def _link(target: Target, output: Path, script: Path, parts: list[Path]) -> str | None:
    """Give why the board cannot hold the program, if so; raises LinkError."""
    try:
        boards.link(["-T", str(script), "-o", str(output), *map(str, parts)], target)
    except LinkError as error:
        if _FULL not in str(error.failure.details.get("output", "")):
            raise
        return f"it is larger than the memory of the board {name_of(target)}"
    return None


def warm_up(target: Target) -> None:
    """Build what programs link beside the library into the shared cache; raises LinkError."""
    boards.libraries(target)
