"""TVM's runtime as a static archive, built from the sources in its wheels for platforms that have
no wheel.
"""

import hashlib
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from compiler.errors import ToolchainMissing
from compiler.runtimes import folder
from compiler.targets import Target
from compiler.targets.target import Platform
from compiler.toolchain import zig
from compiler.toolchain.build import header_text
from compiler.toolchain.packages import folder_of

COMMAND = "python -m compiler.runtimes build"
NAME = "libtvm_runtime.a"
_SECONDS = 3600
SUPPORT = Path(__file__).with_name("support")
"""The headers that TVM's sources include and its wheels leave out."""
_DEPTHS = (0, 1, 2, 5)
"""How many folders up from themselves TVM's sources look for those headers."""


@dataclass(frozen=True)
class Unit:
    """Sources of one package that are compiled together."""

    package: str
    patterns: tuple[str, ...]


FFI = Unit(
    "tvm_ffi",
    (
        "src/ffi/[!b]*.cc",
        "src/ffi/backtrace.cc",
        "src/ffi/extra/env*.cc",
        "src/ffi/extra/json*.cc",
        "src/ffi/extra/library_module.cc",
        "src/ffi/extra/library_module_system_lib.cc",
        "src/ffi/extra/module.cc",
    ),
)
RUNTIME = Unit(
    "tvm",
    (
        "src/runtime/const_loader_module.cc",
        "src/runtime/*device_api.cc",
        "src/runtime/file_utils.cc",
        "src/runtime/logging.cc",
        "src/runtime/module.cc",
        "src/runtime/tensor.cc",
        "src/runtime/thread*.cc",
        "src/runtime/workspace_pool.cc",
        "src/runtime/memory/*.cc",
        "src/runtime/vm/b*.cc",
        "src/runtime/vm/executable.cc",
        "src/runtime/vm/vm.cc",
        "src/runtime/extra/contrib/sort/sort.cc",
    ),
)
UNITS = (FFI, RUNTIME)
_FLAGS = (
    "-std=c++20",
    "-O2",
    "-g0",
    "-fPIC",
    "-w",
    "-DTVM_FFI_USE_LIBBACKTRACE=0",
    "-DTVM_FFI_BACKTRACE_ON_SEGFAULT=0",
    "-DTVM_FFI_CMAKE_LITTLE_ENDIAN=1",
)


def path_of(platform: Platform) -> Path:
    """Where the platform's archive lies, whether it exists or not; a change of the recipe changes
    the path.
    """
    return folder() / metadata.version("apache-tvm") / f"{platform.linker}-{_recipe()}" / NAME


@cache
def _recipe() -> str:
    """A digest over what decides the archive's content beside TVM's version."""
    digest = hashlib.sha256(repr((_FLAGS, UNITS)).encode())
    digest.update(header_text(SUPPORT))
    return digest.hexdigest()[:8]


def present(platform: Platform) -> bool:
    """True if programs for the platform can be linked here."""
    return path_of(platform).is_file()


def include_folders() -> tuple[Path, ...]:
    """Headers of TVM's runtime and of its function interface."""
    tvm, ffi = folder_of("tvm"), folder_of("tvm_ffi")
    return (tvm / "include", ffi / "include", ffi / "3rdparty" / "dlpack" / "include")


def build(target: Target) -> Path:
    """The archive for the target's platform, which appears complete or not at all: minutes; raises
    LinkError.

    Zig's C++ library, which programs with the archive in them need too, is in the shared cache
    afterwards.
    """
    output = path_of(target.platform)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output.parent) as scratch:
        if not output.is_file():
            _compile_all(target, Path(scratch)).rename(output)
        _link_nothing(target, Path(scratch))
    return output


def _compile_all(target: Target, folder: Path) -> Path:
    include = [f"-I{path}" for path in (*include_folders(), *_own_headers(folder / "support"))]
    with ThreadPoolExecutor(len(UNITS)) as pool:
        objects = list(pool.map(lambda unit: _compile(unit, folder, include, target), UNITS))
    zig.archive(objects, folder / NAME)
    return folder / NAME


def _own_headers(folder: Path) -> list[Path]:
    """A copy of the support headers, as folders to search: TVM's sources name headers relative to
    where they lie.
    """
    shutil.copytree(SUPPORT, folder)
    folders = [folder.joinpath(*["deeper"] * depth) for depth in _DEPTHS]
    folders[-1].mkdir(parents=True)
    return folders


def _compile(unit: Unit, folder: Path, include: list[str], target: Target) -> Path:
    """All sources of a package as one: most of the time goes into headers that each of them
    includes.
    """
    source, compiled = folder / f"{unit.package}.cc", folder / f"{unit.package}.o"
    source.write_text("".join(f'#include "{path}"\n' for path in sources(unit)))
    zig.compile_with_zig(
        *_FLAGS,
        *include,
        "-c",
        "-o",
        str(compiled),
        str(source),
        triple=target.platform.linker,
        language="c++",
        seconds=_SECONDS,
    )
    return compiled


def _link_nothing(target: Target, folder: Path) -> None:
    """Zig compiles both of its libraries, over a thousand files, before it links the first program
    for a platform.
    """
    source = folder / "empty.cc"
    source.write_text("int main() { return 0; }\n")
    zig.compile_with_zig(
        "-static",
        "-o",
        str(folder / "empty"),
        str(source),
        triple=target.platform.linker,
        language="c++",
        seconds=_SECONDS,
    )


def sources(unit: Unit) -> list[Path]:
    """The unit's files in the installed package; raises ToolchainMissing where there are none."""
    files = [
        path for pattern in unit.patterns for path in sorted(folder_of(unit.package).glob(pattern))
    ]
    if not files:
        hint = "reinstall apache-tvm and apache-tvm-ffi from their wheels"
        raise ToolchainMissing(
            f"the package {unit.package} holds no sources", reason="runtime_missing", hint=hint
        )
    return files
