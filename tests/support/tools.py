"""Tools of other languages that tests use where they are installed."""

import shutil
import subprocess


def is_usable(tool: str) -> bool:
    """True if the tool is there and runs: rustup's `cargo` may have no toolchain behind it."""
    if shutil.which(tool) is None:
        return False
    asked = subprocess.run([tool, "--version"], capture_output=True, check=False)
    return tool != "cargo" or asked.returncode == 0
