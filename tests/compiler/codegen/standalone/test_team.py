"""Threads of a WebAssembly module: helpers run tasks at the same time as whoever leads, wake when
they are needed, and fail without anyone waiting for ever.
"""

import json
import subprocess
from pathlib import Path

import pytest

from compiler import targets
from compiler.link import standalone
from compiler.runtimes import wasm
from compiler.toolchain import zig
from compiler.verify.emulation import browser, engine
from tests.support.servers import missing

HERE = Path(__file__).parent
SOURCES = Path(standalone.__file__).parents[1] / "codegen" / "standalone"
TARGET = targets.resolve("wasm32-threads")
KERNEL_FAILED = 4
SLOTS = {"together": 0b111, "afterSleep": 0b11, "afterTrap": 0b111, "alone": 0b1}
STATUSES = {"status": 7, "trap": KERNEL_FAILED, "late": 9, "lateWithoutWaiting": 9}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("team")
    compiled, linked = folder / "team.o", folder / "team.wasm"
    zig.compile_with_zig(
        *("-c", *standalone._COMPILED, *standalone._flags_of(TARGET), "-I", str(SOURCES)),
        *("-o", str(compiled), str(HERE / "team.c")),
        triple=TARGET.platform.linker,
    )
    flags = ("--no-entry", "--stack-first", *standalone._SHARED)
    wasm.link([*flags, "-o", str(linked), str(compiled)], TARGET)
    return linked


@pytest.mark.parametrize("options", [(), ("--liftoff-only",)], ids=["", "liftoff"])
def test_helpers_take_part_sleep_wake_and_fail(module: Path, options: tuple[str, ...]) -> None:
    """The first of V8's two compilers is what a page's first run meets."""
    program = engine.find()
    if program is None:
        missing("node", "apt-get install nodejs")
    arguments = [str(HERE / "team.mjs"), str(module), str(browser.PACKAGE.resolve())]
    done = subprocess.run(
        [program, *options, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == {"threads": 3, **SLOTS, **STATUSES}
