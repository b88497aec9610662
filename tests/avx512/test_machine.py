"""The emulated machine itself: what a program says and writes comes back, and so does how
it ended.
"""

from pathlib import Path

import pytest

from compiler import targets
from compiler.toolchain import zig
from tests.avx512 import machine, programs
from tests.avx512.machine import PROCESSORS, Processor

pytestmark = pytest.mark.skipif(machine.lacking() is not None, reason=str(machine.lacking()))

SECONDS = 60
PRINTED = """\
low 1 8 15 22 29 36 43 50 -1 -1 -1 -1 -1 -1 -1 -1
wide 3 6 9 12 15 18 21 24 27 30 33 36 39 42 45 48
kept 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
spread 3 0 0 6 0 0 9 0 0 12 0 0 15 0 0 18
"""


@pytest.fixture(scope="module")
def gathers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("gathers") / "gathers"
    source = Path(__file__).with_name("far_indices.c")
    zig.compile_with_zig(
        "-mavx512f",
        "-o",
        str(output),
        str(source),
        triple=targets.resolve("x86-64-v4").platform.linker,
    )
    return output


@pytest.mark.parametrize("processor", PROCESSORS.values())
def test_gathers_take_indices_from_any_register(processor: Processor, gathers: Path) -> None:
    outcome = machine.run(
        processor, [[str(gathers)]], programs.loaded_by(gathers), {}, seconds=SECONDS
    )
    assert (outcome.ended[0].status, outcome.printed) == (7, PRINTED)


def test_a_command_that_fails_leaves_those_after_it_alone(gathers: Path) -> None:
    commands = [[str(gathers)], ["/nothing"], [str(gathers)]]
    outcome = machine.run(
        Processor.SKYLAKE_X, commands, programs.loaded_by(gathers), {}, seconds=SECONDS
    )
    assert [ended.status for ended in outcome.ended] == [7, 127, 7]


def test_a_machine_that_runs_out_of_time_says_what_has_not_ended(gathers: Path) -> None:
    outcome = machine.run(
        Processor.SKYLAKE_X, [[str(gathers)]] * 200, programs.loaded_by(gathers), {}, seconds=1
    )
    assert outcome.ended[-1].status is None
