"""TVM's runtime as a static archive, built from the sources in its wheels for platforms that have no wheel."""

import importlib.util
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from compiler import link
from compiler.errors import ToolchainMissing
from compiler.runtimes import folder
from compiler.targets import Target
from compiler.targets.target import Platform

COMMAND = "python -m compiler.runtimes build"
NAME = "libtvm_runtime.a"
_SUPPORT = Path(__file__).with_name("support")
"""Headers that the wheels leave out, as far as what is built needs them."""
_FFI = ("src/ffi/[!b]*.cc", "src/ffi/backtrace.cc", "src/ffi/extra/*.cc")
_RUNTIME = (
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
)
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
    """Where the platform's archive lies; it may not exist."""
    return folder() / metadata.version("apache-tvm") / platform.linker / NAME


def present(platform: Platform) -> bool:
    """Whether programs for the platform can be linked here."""
    return path_of(platform).is_file()


def include_folders() -> tuple[Path, ...]:
    """Headers of TVM's runtime and of its function interface."""
    tvm, ffi = _package("tvm"), _package("tvm_ffi")
    return (tvm / "include", ffi / "include", ffi / "3rdparty" / "dlpack" / "include")


def build(target: Target) -> Path:
    """The archive for the target's platform, which appears complete or not at all: minutes; raises LinkError."""
    output = path_of(target.platform)
    if output.is_file():
        return output
    output.parent.mkdir(parents=True, exist_ok=True)
    # TVM's sources name their own headers relative to where they lie: `from/here` stands for such a place.
    own = (_SUPPORT, _SUPPORT / "from", _SUPPORT / "from" / "here")
    include = [f"-I{path}" for path in (*include_folders(), *own)]
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output.parent) as scratch:
        objects: list[Path] = []
        for source in _sources():
            compiled = Path(scratch) / f"{len(objects)}-{source.stem}.o"
            link.compile_with_zig(*_FLAGS, *include, "-c", "-o", str(compiled), str(source), target=target, language="c++")
            objects.append(compiled)
            print(f"{len(objects)} {source.name}", file=sys.stderr, flush=True)
        link.link_objects(objects, Path(scratch) / NAME, target)
        (Path(scratch) / NAME).rename(output)
    return output


def _sources() -> list[Path]:
    found = [path for pattern in _FFI for path in sorted(_package("tvm_ffi").glob(pattern))]
    found += [path for pattern in _RUNTIME for path in sorted(_package("tvm").glob(pattern))]
    if not found:
        raise ToolchainMissing("the wheels of TVM hold no sources", reason="runtime_missing", hint="reinstall apache-tvm from its wheel")
    return found


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainMissing(f"{name} is not installed", reason="missing_package", hint="pip install 'relaxd[server]'")
    return Path(spec.submodule_search_locations[0])
