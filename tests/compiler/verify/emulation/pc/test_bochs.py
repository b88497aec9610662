"""The emulated PC itself: what a program prints and writes comes back, and so does how it ended."""

from pathlib import Path

import pytest

from compiler import targets
from compiler.targets import x86
from compiler.toolchain import zig
from compiler.verify.emulation import dynamic
from compiler.verify.emulation.pc import bochs
from compiler.verify.emulation.pc.bochs import Ended
from compiler.verify.emulation.pc.disk import Unfit

pytestmark = pytest.mark.skipif(
    bochs.explain_missing() is not None, reason=str(bochs.explain_missing())
)

SECONDS = 60
TARGET = targets.resolve("x86-64-v4")
PCS = x86.X86_64.emulation.pcs if x86.X86_64.emulation else {}
EACH = pytest.mark.parametrize("processor", PCS)
PRINTED = """\
low 1 8 15 22 29 36 43 50 -1 -1 -1 -1 -1 -1 -1 -1
wide 3 6 9 12 15 18 21 24 27 30 33 36 39 42 45 48
beside 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
spread 3 0 0 6 0 0 9 0 0 12 0 0 15 0 0 18
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for source in sorted(Path(__file__).parent.glob("*.c")):
        output = ("-o", str(folder / source.stem))
        zig.compile_with_zig("-mavx512f", *output, str(source), triple=TARGET.platform.linker)
    return folder


def run(
    program: Path,
    *arguments: str,
    processor: str = "corei7_skylake_x",
    seconds: float = SECONDS,
    output: Path | None = None,
) -> Ended:
    files = [program] if program.is_file() else []
    return bochs.run(
        processor,
        [str(program), *arguments],
        [*files, *dynamic.system_libraries(TARGET)],
        {output: 1000} if output else {},
        seconds=seconds,
    )


@EACH
def test_gathers_take_indices_from_any_register(processor: str, programs: Path) -> None:
    assert run(programs / "upper_indices", processor=processor) == Ended(7, PRINTED)


@EACH
def test_processors_have_the_features_that_targets_rely_on(processor: str, programs: Path) -> None:
    printed = run(programs / "features", processor=processor).printed
    assert set(printed.split()) == PCS[processor] - set(x86.LEVELS[3])


def test_a_program_that_is_not_there() -> None:
    assert run(Path("/nothing")).status == 127


def fault(programs: Path, kind: str, output: Path, seconds: float = SECONDS) -> Ended:
    return run(programs / "faults", kind, str(output), output=output, seconds=seconds)


def test_an_output_comes_back(programs: Path, tmp_path: Path) -> None:
    assert fault(programs, "none", tmp_path / "out") == Ended(0, "")
    assert (tmp_path / "out").read_bytes() == b"written"


def test_an_invalid_instruction_ends_the_program(programs: Path, tmp_path: Path) -> None:
    ended = fault(programs, "invalid", tmp_path / "out")
    assert ended.status == 128 + 6
    assert "code 0f0b" in ended.printed


def test_outputs_are_no_larger_than_their_room(programs: Path, tmp_path: Path) -> None:
    ended = fault(programs, "too much", tmp_path / "out")
    assert (ended.status, ended.printed) == (3, "out of memory: a file of results is full\n")
    assert fault(programs, "greedy", tmp_path / "out").status == 4


@pytest.mark.parametrize("kind", ["endless", "talkative", "reboot", "triple fault"])
def test_a_machine_without_an_end_is_stopped(kind: str, programs: Path, tmp_path: Path) -> None:
    ended = fault(programs, kind, tmp_path / "out", seconds=2)
    assert ended.status is None
    assert ended.late == (kind in ("endless", "talkative"))
    assert len(ended.printed) <= 2000


def test_the_table_has_an_end(programs: Path) -> None:
    with pytest.raises(Unfit, match="too many files or arguments"):
        run(programs / "features", "x" * 5000)
