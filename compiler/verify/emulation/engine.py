"""Which WebAssembly engine this machine has: node's, which is that of Chromium, or wasmtime."""

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from compiler.verify.emulation.browser import PACKAGE

DRIVER = Path(__file__).with_suffix(".mjs")
_NODE = "node"
_PACKAGE = "wasmtime"
_HOST = "compiler.verify.emulation.wasmtime_host"
_UNSEEN = "the engines of browsers and of node"


@dataclass(frozen=True)
class Engine:
    """A program that runs modules: its name, and the command that takes what DRIVER says; report:
    the entries of numerics.json about it.
    """

    name: str
    command: tuple[str, ...]
    report: tuple[tuple[str, str], ...] = ()


def choose(*, threads: bool = False) -> Engine | str:
    """The engine for modules of several threads or one, node before wasmtime; else why there is
    none.
    """
    missing = lacking(threads=threads)
    program = find()
    if missing is None and program is not None:
        return Engine(_NODE, (program, *flags(program), str(DRIVER)))
    if importlib.util.find_spec(_PACKAGE) is None:
        return f"{missing}, nor is the Python package {_PACKAGE}"
    if threads:
        return f"{missing}, and {_PACKAGE} runs no module of several threads from Python"
    by = f"{_PACKAGE} {metadata.version(_PACKAGE)}"
    report = (("by", by), ("unseen", _UNSEEN))
    return Engine(_PACKAGE, (sys.executable, "-P", "-m", _HOST), report)


def find() -> str | None:
    """The program node; None where there is none."""
    return shutil.which(_NODE)


def lacking(*, threads: bool = False) -> str | None:
    """Why node cannot run WebAssembly here, of several threads or one; None when it can."""
    if threads and not (PACKAGE / "threads.js").exists():
        return "the npm package's modules are not installed"
    return None if find() else f"{_NODE} is not installed"


@cache
def flags(program: str) -> tuple[str, ...]:
    """Options with which this version of node takes every feature that a target may have: it had
    relaxed SIMD behind one until its version 21.
    """
    listed = subprocess.run(
        [program, "--v8-options"], capture_output=True, text=True, check=False
    ).stdout
    return tuple(flag for flag in ("--experimental-wasm-relaxed-simd",) if f" {flag} " in listed)
