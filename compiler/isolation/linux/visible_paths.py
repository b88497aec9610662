"""The files that a build needs: those that it may read, and the few that it may write."""

import os
import stat
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from relaxd.contract.model_tar import files_at
from relaxd.errors import DeclarationError

_ROOT = Path(__file__).resolve().parents[3]
_PACKAGES = ("compiler", "relaxd", "clients")
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload"),
    *("/etc/alternatives", "/etc/localtime", "/etc/timezone", "/etc/nsswitch.conf"),
    *("/etc/passwd", "/etc/group", "/etc/OpenCL"),
    *("/sys/devices", "/sys/bus", "/sys/class", "/sys/module", "/sys/fs/cgroup"),
)
"""Programs, libraries and descriptions of the hardware: of the machine, and none of them secret."""

_PROCESSES = "/proc"
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_MOST_OWN = 4096
_GPUS = ("nvidia*", "dri/*", "kfd")


@dataclass(frozen=True)
class VisiblePaths:
    """Absolute paths; a folder stands for everything in it.

    readable: what may be read, and run; listable: folders whose names may be listed; writable: what
    may be changed, and not run; devices: what may be read, written and controlled; own: of the
    readable ones, the model and what it may refer to.
    """

    readable: tuple[Path, ...]
    listable: tuple[Path, ...]
    writable: tuple[Path, ...]
    devices: tuple[Path, ...]
    own: tuple[Path, ...] = ()


def find_paths(
    readable: tuple[Path, ...], writable: tuple[Path, ...], own: tuple[Path, ...] = ()
) -> VisiblePaths:
    """The paths that the compiler itself needs, and a build's own."""
    needed = (*map(Path, _SYSTEM), Path(_PROCESSES), *_python(), *_search(), *readable, *own)
    return VisiblePaths(
        tuple(dict.fromkeys(path for path in needed if path.exists())),
        (_ROOT,),
        writable,
        devices(),
        own,
    )


def find_closed(visible: VisiblePaths) -> Path | None:
    """A path that not everybody may read, or that lies in a folder which not everybody may enter;
    None where there is none. Each file in a build's own folders counts; a folder with very many is
    not looked through, and returned.
    """
    for path in (*visible.readable, *visible.writable):
        for folder in path.resolve().parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                return folder
    for top in visible.own:
        inner = list(islice(_inner_paths(top, visible.writable), _MOST_OWN + 1))
        if len(inner) > _MOST_OWN:
            return top
        if closed := next(filter(_is_closed, inner), None):
            return closed
    return next(filter(_is_closed, visible.readable), None)


def _inner_paths(top: Path, writable: tuple[Path, ...]) -> Iterator[Path]:
    for root, folders, files in os.walk(top):
        folders[:] = [name for name in folders if Path(root, name) not in writable]
        yield from (Path(root, name) for name in (*folders, *files))


def _is_closed(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # a link that leads nowhere
        return False
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & needed != needed


def devices() -> tuple[Path, ...]:
    """The device files that a build may use."""
    gpus = [path for pattern in _GPUS for path in sorted(Path("/dev").glob(pattern))]
    return tuple(path for path in (*map(Path, _DEVICES), *gpus) if path.exists())


def runs_code(model: Path) -> bool:
    """True if loading the model may run code of it: TorchScript's archives do."""
    return zipfile.is_zipfile(model)


def model_files(model: Path) -> tuple[Path, ...]:
    """The model and what it may refer to: an ONNX model's folder, where its external data lies, and
    what links lead to, as in the caches of Hugging Face's libraries.

    A TorchScript model is whole, and runs code when it is loaded: it gets itself.
    """
    if model.is_dir():
        return (model, *(path.resolve() for path in model.iterdir() if path.is_file()))
    if not model.is_file() or runs_code(model):
        return (model, model.resolve())
    try:
        sources = [piece.source for piece in files_at(model).values()]
    except (DeclarationError, OSError):
        sources = []  # reading the model reports the error
    real = (path.resolve() for path in sources if isinstance(path, Path))
    return (model.parent, model.resolve(), *real)


def _python() -> list[Path]:
    """The interpreter, the packages it finds, and of a checkout our own packages alone."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    searched = {path for path in sys.path if path and Path(path).resolve() != _ROOT}
    ours = [_ROOT / name for name in _PACKAGES]
    return [*map(Path, sorted(prefixes | searched)), *ours]


def _search() -> list[Path]:
    """Where the operator has programs and libraries looked for."""
    listed = [os.environ.get(name, "") for name in ("PATH", "LD_LIBRARY_PATH")]
    paths = [Path(item) for text in listed for item in text.split(os.pathsep) if item]
    return [path for path in paths if path.is_absolute() and path != Path("/")]
