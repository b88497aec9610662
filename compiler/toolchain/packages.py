"""Where installed packages lie."""

import importlib.util
from pathlib import Path

from compiler.errors import ToolchainMissing
from relaxd.errors import install_hint


def folder_of(name: str) -> Path:
    """The package's folder, found without importing it; raises ToolchainMissing."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainMissing(
            f"{name} is not installed",
            reason="missing_package",
            hint=install_hint("server"),
        )
    return Path(spec.submodule_search_locations[0])
