"""Links objects into a shared library with zig's clang, which brings every C library it links against."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compiler import cache, runtimes
from compiler.errors import LinkError
from compiler.runtimes.pins import IMPORT_LIBRARY
from compiler.targets import ObjectFormat, Runtime, Target

_SECONDS = 600
_TAIL = 2000
_STRIP = {
    ObjectFormat.ELF: ("-Wl,--build-id=none", "-Wl,-S"),
    ObjectFormat.MACHO: ("-s", "-Wl,-undefined,dynamic_lookup", "-Wl,-install_name,@rpath/model.dylib"),
    ObjectFormat.COFF: ("-s",),
}


Pack = Callable[[Any, bool, str, str], str]
"""What `export_library` takes as `fpack_imports`: module, is_system_lib, prefix and workspace to the path of a source or object."""


def link_library(executable: Any, folder: Path, target: Target, pack: Pack | None = None) -> Path:
    """The file that TVM's `executable` becomes in `folder`, a shared library or a static archive; raises LinkError.

    pack: embeds what the executable imports, in place of TVM's own way.
    """
    output = folder / target.platform.library

    def combine(library: str, objects: list[str], options: Sequence[str] = ()) -> None:
        # A model without a single kernel comes as C sources, and `options` say where their headers lie.
        link_objects([Path(item) for item in objects], Path(library), target, options)

    # TVM asks for the objects' format and platform through these attributes.
    combine.object_format = "o"  # type: ignore[attr-defined]
    combine.get_target_triple = lambda: target.triple  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as workspace:
        executable.export_library(str(output), fcompile=combine, fpack_imports=pack, workspace_dir=workspace)
    return output


def link_objects(objects: Sequence[Path], output: Path, target: Target, options: Sequence[str] = ()) -> None:
    """One library of the objects, with nothing in it that depends on where or when it was linked; raises LinkError."""
    if target.platform.runtime is Runtime.LINKED:
        if any(item.suffix != ".o" for item in objects):
            hint = "build it for a target that takes a shared library"
            raise LinkError("a model without kernels makes no static archive", reason="no_kernels", hint=hint)
        _zig("ar", "rcsD", str(output), *map(str, objects))
        return
    strip = _STRIP[target.platform.object_format]
    with tempfile.TemporaryDirectory() as aside:
        # zig writes import libraries and symbol files beside what it links.
        linked = Path(aside) / output.name
        compile_with_zig("-shared", "-o", str(linked), *strip, *options, *map(str, objects), *_imports(target), target=target)
        shutil.copyfile(linked, output)


def _imports(target: Target) -> list[str]:
    if target.platform.object_format is not ObjectFormat.COFF:
        return []
    return [str(runtimes.find(target.platform) / IMPORT_LIBRARY)]


def warm_up(target: Target) -> None:
    """Have the C library's start files built into the shared cache: some ten seconds once, so that no build waits for it."""
    if target.platform.runtime is Runtime.LINKED:
        return
    with _warming(target) as done:
        if done.exists():
            return
        with tempfile.TemporaryDirectory() as scratch:
            source, compiled = Path(scratch) / "empty.c", Path(scratch) / "empty.o"
            source.write_text("int relaxd_empty;\n")
            compile_with_zig("-c", "-o", str(compiled), str(source), target=target)
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


def compile_with_zig(*arguments: str, target: Target, language: str = "cc", seconds: float = _SECONDS) -> None:
    """Run zig's clang for the target, for so long at most; raises LinkError."""
    # Without it zig compiles a runtime for its sanitizer, half a minute a platform, that nothing of ours refers to.
    _zig(language, "-target", target.platform.linker, "-fno-sanitize=undefined", *arguments, seconds=seconds)


def _zig(*arguments: str, seconds: float = _SECONDS) -> None:
    """Run a command of zig's; its local cache dies with the call, its global one is shared between builds."""
    command = [sys.executable, "-m", "ziglang", *arguments]
    with tempfile.TemporaryDirectory() as local:
        folders = {"ZIG_GLOBAL_CACHE_DIR": str(_zig_cache()), "ZIG_LOCAL_CACHE_DIR": local}
        # Run from above its own files, zig would name them relative to there, and find nothing of the cache.
        status, output = _run(command, {**os.environ, **folders}, seconds, local)
    if status:
        raise LinkError(
            f"the linker failed with status {status}",
            reason="failed",
            hint=f"is {_zig_cache()} writable? {cache.VARIABLE} chooses another place" if "AccessDenied" in output else None,
            output=output[-_TAIL:],
        )


def _run(command: Sequence[str], environment: Mapping[str, str], seconds: float, folder: str) -> tuple[int, str]:
    """The exit status and what was written to standard error; raises LinkError past the time limit, with no process left behind."""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        # Zig starts compilers of its own: in a group of theirs, all of them can be ended.
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, process_group=0
        ) as process:
            try:
                process.wait(seconds)
            except BaseException as ended:
                os.killpg(process.pid, signal.SIGKILL)
                if isinstance(ended, subprocess.TimeoutExpired):
                    raise LinkError(f"the linker ran past {seconds:g} s", reason="timeout", retryable=True) from ended
                raise
        errors.seek(0)
        return process.returncode, errors.read()
