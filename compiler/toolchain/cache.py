"""Where the compiler keeps what every build shares: the linker's cache of the C library it links
against.
"""

import os
from pathlib import Path

VARIABLE = "RELAXD_CACHE_DIR"


def directory() -> Path:
    """`$RELAXD_CACHE_DIR`, else `relaxd` in the user's cache folder; it may not exist yet."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "relaxd"
