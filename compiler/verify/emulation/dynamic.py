"""Links programs against the very C library that the emulator runs them with, so that none is
compiled for them.
"""

from collections.abc import Sequence
from pathlib import Path

from compiler.errors import LinkError
from compiler.targets import Target
from compiler.targets.architectures import architecture_of
from compiler.toolchain import zig
from compiler.verify.emulation import opencl

_START = Path(__file__).with_name("start.c")
_LIBRARIES = ("libc.so.6", "libm.so.6", "libdl.so.2")
_CXX_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "librt.so.1")


def link(
    sources: Sequence[Path],
    options: Sequence[str],
    libraries: Sequence[Path],
    output: Path,
    target: Target,
    archives: Sequence[Path] = (),
) -> None:
    """Compile a driver with the options and link it with the libraries, which it finds where they
    lie, and all of the archives; raises LinkError.
    """
    triple, loader, folder = _system(target)
    parts = (_START, *sources)
    objects = [output.with_name(f"{output.name}-{part.stem}.o") for part in parts]
    for part, compiled in zip(parts, objects, strict=True):
        command = ("-O1", "-fPIE", *options, "-c", "-o", str(compiled), str(part))
        zig.compile_with_zig(*command, triple=triple)
    system = [folder / name for name in (*_LIBRARIES, Path(loader).name)]
    folders = dict.fromkeys(str(library.parent) for library in libraries)
    zig.link_elf(
        *("-pie", "--dynamic-linker", loader, "-o", str(output)),
        *("-z", "now", "--allow-shlib-undefined", "--rpath", ":".join(folders)),
        *("--whole-archive", *map(str, archives), "--no-whole-archive"),
        *map(str, (*objects, *libraries)),
        *("--as-needed", *map(str, system)),
    )


def system_libraries(target: Target) -> list[Path]:
    """The target's system libraries that programs of C and C++ load; raises LinkError."""
    _, loader, folder = _system(target)
    known = [Path(loader), *(folder / name for name in (*_LIBRARIES, *_CXX_LIBRARIES))]
    return [path for path in known if path.is_file()]


def _system(target: Target) -> tuple[str, str, Path]:
    """The triple of dynamic programs for the target's processor, the program that they begin with,
    and their C library's folder.
    """
    emulation = architecture_of(target.arch).emulation
    if not (emulation and emulation.linker and emulation.loader and emulation.libraries):
        raise LinkError(f"no C library for {target.arch} is known", reason="failed")
    folder = opencl.libraries(target) or emulation.libraries
    return emulation.linker, emulation.loader, folder
