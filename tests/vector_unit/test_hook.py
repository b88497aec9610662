"""Builds at another vector unit, while a run says so and no longer."""

import fcntl
import subprocess
import sys
from pathlib import Path

from compiler import targets

_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import hook
hook.install("128/16", sys.argv[2])
from compiler import targets
print(targets.resolve("native").vector_bits)
"""


def _native_bits(lock: Path) -> int:
    command = [sys.executable, "-c", _PROGRAM, str(Path(__file__).parent), str(lock)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_native_has_another_unit_while_a_run_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert _native_bits(path) == 128
    # What a killed run left behind changes nothing.
    assert _native_bits(path) == targets.resolve("native").vector_bits
