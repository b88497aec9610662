"""Which WebAssembly engine this machine has: node's, which is that of Chromium."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

from compiler.verify.emulation.browser import PACKAGE

DRIVER = Path(__file__).with_suffix(".mjs")
_ENGINE = "node"


def find() -> str | None:
    """The program that runs DRIVER; None where there is none."""
    return shutil.which(_ENGINE)


def lacking(*, threads: bool = False) -> str | None:
    """Why this machine cannot run WebAssembly, of several threads or one; None when it can."""
    if threads and not (PACKAGE / "threads.js").exists():
        return "the npm package's modules are not installed"
    return None if find() else f"{_ENGINE} is not installed"


@cache
def flags(program: str) -> tuple[str, ...]:
    """Options with which this version of the engine takes every feature that a target may have:
    node had relaxed SIMD behind one until its version 21.
    """
    listed = subprocess.run(
        [program, "--v8-options"], capture_output=True, text=True, check=False
    ).stdout
    return tuple(flag for flag in ("--experimental-wasm-relaxed-simd",) if f" {flag} " in listed)
