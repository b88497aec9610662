"""Which tests run programs under an emulator whose C library zig has to compile first, which takes
a minute for each platform where the cache is empty: those of `make emulators` alone.
"""

import os

import pytest

ALL = os.environ.get("RELAXD_EMULATION") == "all"
with_c_library = pytest.mark.skipif(not ALL, reason="`make emulators` runs it")


def needs_c_library(arch: str) -> bool:
    """True if programs of that architecture bring a C library of their own: those for aarch64 are
    linked against the emulator's, those for x86-64 against the system's, and a WebAssembly engine
    takes none.
    """
    return arch not in ("aarch64", "x86_64", "wasm32")
