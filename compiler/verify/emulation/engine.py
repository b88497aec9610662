"""Which WebAssembly engine this machine has: node's, which is that of Chromium."""

import shutil
from pathlib import Path

DRIVER = Path(__file__).with_suffix(".mjs")
_ENGINE = "node"


def find() -> str | None:
    """The program that runs DRIVER; None where there is none."""
    return shutil.which(_ENGINE)


def lacking() -> str | None:
    """Why this machine cannot run WebAssembly; None when it can."""
    return None if find() else f"{_ENGINE} is not installed"
