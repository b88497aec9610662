"""Puts libraries for Apple's systems and Windows into programs for Linux, which load them by
themselves.
"""

import re
import shutil
import subprocess
from pathlib import Path

from compiler.errors import LinkError
from compiler.link.standalone import FUNCTIONS
from compiler.targets import ObjectFormat, Target

_FOLDER = Path(__file__).parent
_LOADERS = {
    ObjectFormat.MACHO: _FOLDER / "macho.c",
    ObjectFormat.COFF: _FOLDER / "pe.c",
}
LINKERS = ("ld64.lld", *(f"ld64.lld-{version}" for version in range(22, 13, -1)))
"""Names of the programs that link libraries for Apple's systems, the preferred first."""
_OWN = re.compile(r"__\w+|bzero|memset_pattern16")
"""Names of functions that Apple's libraries alone have, which the loader brings."""


def explain_missing(target: Target) -> str | None:
    """Why a program cannot load a library for the target here; None if it can, or need not."""
    linked = target.platform.object_format is ObjectFormat.MACHO and target.platform.archived
    return "ld64.lld is not installed: install lld" if linked and _linker() is None else None


def loader_of(target: Target) -> Path | None:
    """The source of what loads a library for the target; None where programs are linked with it."""
    return _LOADERS.get(target.platform.object_format)


def prepare(library: Path, prefix: str, target: Target, folder: Path) -> list[str]:
    """Write into the folder what the loader includes, an archive linked into a library for it, and
    return the options that the loader is compiled with; raises LinkError.

    prefix: of the functions that the library exports.
    """
    if target.platform.archived:
        library = _link(library, target, folder / "model.dylib")
    calls = [name for name in target.platform.abi.calls if not _OWN.fullmatch(name)]
    exports = [f"{prefix}_{name}" for name in FUNCTIONS]
    _write_list(folder / "calls.h", "CALL", calls)
    _write_list(folder / "exports.h", "EXPORT", exports)
    return [f"-I{folder}", f'-DLIBRARY="{library}"']


def _write_list(path: Path, macro: str, names: list[str]) -> None:
    path.write_text("".join(f"{macro}({name})\n" for name in names), encoding="utf-8")


def _link(archive: Path, target: Target, output: Path) -> Path:
    """Link the archive as a program for a phone does: no symbol is looked up at this time."""
    version = re.sub(r"[a-z0-9]+-apple-[a-z]+", "", target.triple)
    command = [
        *(str(_linker()), "-arch", "arm64", "-platform_version", target.platform.os),
        *(version, version, "-dylib", "-undefined", "dynamic_lookup"),
        *("-all_load", "-o", str(output), str(archive)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        message = f"ld64.lld failed with status {done.returncode}"
        raise LinkError(message, reason="failed", output=done.stderr[-2000:])
    return output


def _linker() -> str | None:
    return next(filter(None, map(shutil.which, LINKERS)), None)
