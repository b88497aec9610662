"""Where the compiler keeps what every build shares: the linker's cache of the C library it links
against; and a build's own view of it.
"""

import os
import shutil
from pathlib import Path

VARIABLE = "RELAXD_CACHE_DIR"
_SHARED = "RELAXD_SHARED_CACHE_DIR"


def directory() -> Path:
    """`$RELAXD_CACHE_DIR`, else `relaxd` in the user's cache folder; it may not exist yet."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "relaxd"


def private_view(shared: Path, folder: Path) -> dict[str, str]:
    """Fill `folder` so that the compiler can use it in place of `shared`, which stays as it is;
    returns the variables that have a process use it.
    """
    for version in _entries(shared / "runtimes"):
        _link_each(version, folder / "runtimes" / version.name)
    return {VARIABLE: str(folder), _SHARED: str(shared)}


def linker_folder(triple: str, installation: str) -> Path:
    """The cache of one installation of zig for a platform; a private view gets its part at the
    first call.
    """
    name = Path("zig", installation, triple)
    folder = directory() / name
    shared = os.environ.get(_SHARED)
    if shared and not folder.exists():
        _view_of_zig(Path(shared) / name, folder)
    return folder


def _view_of_zig(shared: Path, folder: Path) -> None:
    """zig writes to its manifests even when it finds everything there: those and what it generates
    are copied, they are small. What it compiled are links. What zig keeps besides serves only to
    build what is missing, and is left out.
    """
    for path in _entries(shared):
        if path.name in ("h", "b"):
            _copy_each(path, folder / path.name)
        elif path.name == "o":
            # zig replaces a folder that it makes again, but not a link to one.
            for entry in _entries(path):
                _link_each(entry, folder / "o" / entry.name)
        elif path.suffix == ".warm":
            folder.mkdir(parents=True, exist_ok=True)
            (folder / path.name).touch()


def _copy_each(source: Path, target: Path) -> None:
    """Copies of the contents alone: the sandbox refuses changes of modes and times."""
    target.mkdir(parents=True)
    for path in _entries(source):
        if path.is_dir():
            _copy_each(path, target / path.name)
        else:
            shutil.copyfile(path, target / path.name)


def _link_each(source: Path, target: Path) -> None:
    """Links to the entries of a folder, but for empty ones, in which something is to be built."""
    target.mkdir(parents=True)
    for path in _entries(source):
        if path.is_file() or any(entry.is_file() for entry in path.iterdir()):
            (target / path.name).symlink_to(path)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
