"""Runs zig's clang, which brings every C library it links against, within a time limit and with a
shared cache.
"""

import fcntl
import hashlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from compiler.errors import LinkError
from compiler.toolchain import cache
from compiler.toolchain.packages import folder_of

_SECONDS = 600
_TAIL = 2000
_UNDEFINED = re.compile(r"warning: undefined symbol: (\S+)")


def compile_with_zig(
    *arguments: str, triple: str, language: str = "cc", seconds: float = _SECONDS
) -> None:
    """Run zig's clang for at most `seconds`; raises LinkError.

    triple: what `zig cc -target` takes, as in `x86_64-linux-gnu.2.28`; language: `cc` or `c++`.
    """
    # Without this flag zig compiles a runtime for its sanitizer, half a minute a platform, to
    # which none of our code refers.
    words = (language, "-target", triple, "-fno-sanitize=undefined", *arguments)
    _zig(*words, folder=_folder(triple), seconds=seconds)


def archive(objects: Sequence[Path], output: Path) -> None:
    """Write a static archive of the objects, equal for equal objects; raises LinkError."""
    _without_cache("ar", "rcsD", str(output), *map(str, objects))


def import_library(definition: Path, output: Path) -> None:
    """Write what code for Windows on x86-64 is linked against to call the functions of a DLL, which
    a module definition file lists; raises LinkError.
    """
    _without_cache("dlltool", *("-m", "i386:x86-64", "-d", str(definition), "-l", str(output)))


def merge_coff(parts: Sequence[Path], output: Path) -> None:
    """Write one archive of objects and the members of archives for Windows; raises LinkError."""
    _without_cache("lib", f"-out:{output}", *map(str, parts))


def link_dll(*arguments: str) -> None:
    """Link a DLL against what the arguments name and nothing else; raises LinkError.

    By the linker itself: zig's own front end adds a C library, a hundred seconds of compiling where
    it is not in the cache yet.
    """
    _without_cache("lld-link", "-nologo", "-dll", "-nodefaultlib", *arguments)


def link_elf(*arguments: str) -> frozenset[str]:
    """Link ELF objects against what the arguments name and nothing else, and return the undefined
    symbols that the linker warns of; raises LinkError.

    By the linker itself: zig's own front end adds a C library, ten seconds of compiling where it is
    not in the cache yet.
    """
    return frozenset(_UNDEFINED.findall(_without_cache("ld.lld", *arguments)))


def merge(objects: Sequence[Path], output: Path) -> None:
    """Write one ELF object of several, without what serves debugging; raises LinkError."""
    with tempfile.TemporaryDirectory() as nothing:
        # The linker's own option for this does nothing where its output is an object.
        script = Path(nothing, "merge.ld")
        script.write_text("SECTIONS { /DISCARD/ : { *(.debug*) *(.comment) *(.eh_frame) } }\n")
        link_elf("-r", "-T", str(script), "-o", str(output), *map(str, objects))


def build_archive(*arguments: str, output: Path, triple: str) -> None:
    """Compile what the arguments name, of which the last source may be in zig's language, into a
    static archive; raises LinkError.
    """
    words = ("build-lib", "-static", "-fno-compiler-rt", "-target", triple, f"-femit-bin={output}")
    _without_cache(*words, *arguments)


def sources() -> Path:
    """The folder of the C libraries and runtimes that zig builds; raises ToolchainMissing."""
    return folder_of("ziglang") / "lib"


def link_wasm(*arguments: str) -> None:
    """Link a WebAssembly module of what the arguments name and nothing else; raises LinkError.

    By the linker itself, since zig's own front end makes the module executable afterwards, which a
    build's sandbox refuses.
    """
    _without_cache("wasm-ld", *arguments)


def warm_up(triple: str) -> None:
    """Build what zig links into every library into the shared cache, so that no build waits for it.

    Takes some five seconds once for each triple, nothing afterwards; raises LinkError.
    """
    with _warming(triple, triple) as scratch:
        if scratch is not None:
            source, compiled = scratch / "empty.c", scratch / "empty.o"
            source.write_text("int relaxd_empty;\n")
            compile_with_zig("-c", "-o", str(compiled), str(source), triple=triple)
            linked = scratch / "empty.so"
            # Stripped as what we link: zig builds what both take once more for the other.
            compile_with_zig("-shared", "-s", "-o", str(linked), str(compiled), triple=triple)


def warm_up_program(triple: str, *, language: str, arguments: Sequence[str]) -> None:
    """`warm_up`, for programs that are linked with the arguments."""
    with _warming(triple, "-".join((language, *arguments))) as scratch:
        if scratch is not None:
            source = scratch / "empty.c"
            source.write_text("int main(void) { return 0; }\n")
            output = ("-o", str(scratch / "empty"), str(source))
            compile_with_zig(*arguments, *output, triple=triple, language=language)


@contextmanager
def _warming(triple: str, name: str) -> Iterator[Path | None]:
    """Lock out other processes that would fill the cache in the same way; yields a folder to work
    in, None where it is filled. Raises LinkError.
    """
    folder = _folder(triple)
    done = folder / f"{name}.warm"
    if done.exists():
        yield None
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f"{name}.lock").open("w")
    except OSError as error:
        hint = f"{cache.VARIABLE} chooses another place"
        message = f"the linker's cache {folder} cannot be written: {error.strerror}"
        raise LinkError(message, reason="failed", hint=hint) from error
    with lock, tempfile.TemporaryDirectory() as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield None if done.exists() else Path(scratch)
        done.touch()


def _folder(triple: str) -> Path:
    """The cache of this installation: zig takes nothing that was built from files at another place,
    or of other inodes or times, and builds over it, which a build's sandbox refuses.
    """
    program = _program().resolve()
    status = program.stat()
    identity = f"{program} {status.st_ino} {status.st_mtime_ns}"
    return cache.linker_folder(triple, hashlib.sha256(identity.encode()).hexdigest()[:12])


def _program() -> Path:
    """The program of the package: starting Python first takes longer than many a link."""
    return folder_of("ziglang") / "zig"


def _zig(*arguments: str, folder: Path, seconds: float = _SECONDS) -> str:
    """Run one zig command and return what it printed as errors; its local cache dies with the call,
    its global one is the folder.
    """
    command = [str(_program()), *arguments]
    with tempfile.TemporaryDirectory() as local:
        folders = {"ZIG_GLOBAL_CACHE_DIR": str(folder), "ZIG_LOCAL_CACHE_DIR": local}
        # zig names files relative to the working directory. Run from above its own cache, it would
        # write such names into the cache and not find the files again: it runs in `local`.
        status, output = _run(command, {**os.environ, **folders}, seconds, local)
    if status:
        where = f"is {folder} writable? {cache.VARIABLE} chooses another place"
        raise LinkError(
            f"the linker failed with status {status}",
            reason="failed",
            hint=where if "AccessDenied" in output else None,
            output=output[-_TAIL:],
        )
    return output


def _without_cache(*arguments: str) -> str:
    with tempfile.TemporaryDirectory() as nothing:
        return _zig(*arguments, folder=Path(nothing))


def _run(
    command: Sequence[str], environment: Mapping[str, str], seconds: float, folder: str
) -> tuple[int, str]:
    """The exit status and the standard error of a command run in `folder`.

    Raises LinkError past the time limit; no process is left behind.
    """
    # Zig starts compilers of its own: a process group of theirs lets us end all of them.
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        errors="replace",
        process_group=0,
    ) as process:
        try:
            # Waiting for the end of a pipe: `wait` with a time limit looks every 50 ms.
            _, output = process.communicate(timeout=seconds)
        except BaseException as ended:
            # Some sandboxes refuse all signals to others: there zig ends with the build.
            with suppress(PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(ended, subprocess.TimeoutExpired):
                message = f"the linker ran past {seconds:g} s"
                raise LinkError(message, reason="timeout", retryable=True) from ended
            raise
        return process.returncode, output
