"""Links objects into a shared library with zig's clang, which brings every C library it links against."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import cache
from compiler.errors import LinkError
from compiler.targets import Target

if TYPE_CHECKING:
    from tvm import relax

_SECONDS = 600
_TAIL = 2000


def link_library(executable: "relax.VMExecutable", output: Path, target: Target) -> None:
    """Write the executable as the shared library `output`; raises LinkError."""

    def combine(library: str, objects: list[str], options: Sequence[str] = ()) -> None:
        # A model without a single kernel comes as C sources, and `options` say where their headers lie.
        link_objects([Path(item) for item in objects], Path(library), target, options)

    # TVM asks for the objects' format through this attribute.
    combine.object_format = "o"  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as workspace:
        executable.export_library(str(output), fcompile=combine, workspace_dir=workspace)


def link_objects(objects: Sequence[Path], output: Path, target: Target, options: Sequence[str] = ()) -> None:
    """One shared library of the objects, with nothing in it that depends on where or when it was linked; raises LinkError."""
    _zig("-shared", "-o", str(output), "-Wl,--build-id=none", "-Wl,-S", *options, *map(str, objects), target=target)


def warm_up(target: Target) -> None:
    """Have the C library's start files built into the shared cache: half a minute once, so that no build waits for it."""
    with _warming(target) as done:
        if done.exists():
            return
        with tempfile.TemporaryDirectory() as scratch:
            source, compiled = Path(scratch) / "empty.c", Path(scratch) / "empty.o"
            source.write_text("int relaxd_empty;\n")
            _zig("-c", "-o", str(compiled), str(source), target=target)
            link_objects([compiled], Path(scratch) / "empty.so", target)
        done.touch()


@contextmanager
def _warming(target: Target) -> Iterator[Path]:
    """Holds off other processes that would fill the same cache; the marker file says that it is full."""
    folder = _zig_cache()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{target.platform.linker}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / f"{target.platform.linker}.warm"


def _zig_cache() -> Path:
    return cache.directory() / "zig"


def _zig(*arguments: str, target: Target) -> None:
    """Run `zig cc` for the target; its local cache dies with the call, its global one is shared between builds."""
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target.platform.linker, *arguments]
    with tempfile.TemporaryDirectory() as local:
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(_zig_cache()), "ZIG_LOCAL_CACHE_DIR": local}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise LinkError(f"the linker ran past {_SECONDS} s", reason="timeout", retryable=True) from error
    if done.returncode:
        raise LinkError(
            f"the linker failed with status {done.returncode}",
            reason="failed",
            hint=f"is {_zig_cache()} writable? {cache.VARIABLE} chooses another place" if "AccessDenied" in done.stderr else None,
            output=done.stderr[-_TAIL:],
        )
