"""Which tests run programs under an emulator whose C library zig has to compile first, which takes
a minute for each platform where the cache is empty: those of `make emulators` alone.
"""

import os

import pytest

from compiler import targets
from compiler.targets import Target
from compiler.verify.emulation import emulator
from tests.support.servers import missing

ALL = os.environ.get("RELAXD_EMULATION") == "all"
with_c_library = pytest.mark.skipif(not ALL, reason="`make emulators` runs it")


def needs_c_library(arch: str) -> bool:
    """True if programs of that architecture bring a C library of their own: those for aarch64 are
    linked against the emulator's, those for x86-64 against the system's, and a WebAssembly engine
    takes none.
    """
    return arch not in ("aarch64", "x86_64", "wasm32")


def require_board(name: str) -> Target:
    """The target; skips the test, or fails it, where this machine lacks its emulator."""
    target = targets.resolve(name)
    if lacking := emulator.explain_missing(target):
        what, _, package = lacking.partition(" is not installed: install ")
        missing(what, f"apt-get install {package}")
    return target
