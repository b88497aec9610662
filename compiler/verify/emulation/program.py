"""Builds the program that runs a bundle under an emulator: the driver, linked with the bundle or
with its runtime alone.
"""

from pathlib import Path

from compiler import runtimes
from compiler.link import header
from compiler.runtimes import archives
from compiler.targets import NATIVE, Runtime, Target, resolve
from compiler.toolchain import zig
from compiler.toolchain.packages import folder_of
from compiler.verify.emulation import dynamic, emulator, foreign, opencl
from relaxd.contract.bundle.manifest import THREADS
from relaxd.contract.options import Flavour

DRIVER = Path(__file__).with_name("driver.c")
STANDALONE_DRIVER = DRIVER.with_name("standalone.c")
_INTERFACE = "libtvm_ffi.so"
THREAD_COUNT = 2
"""Of a bundle's own threads, where it brings them: enough to see that they work there."""


def build(bundle: Path, target: Target, output: Path) -> None:
    """Write the program for the bundle to `output`; raises LinkError."""
    include = [f"-I{path}" for path in archives.include_folders()]
    if not _static(target):
        _with_libraries(bundle, include, target, output)
        return
    zig.compile_with_zig(
        *("-O1", *include, "-o", str(output), str(DRIVER), *_with_archive(bundle, target)),
        triple=target.platform.linker,
        language="c++",
    )


def build_standalone(bundle: Path, prefix: str, target: Target, output: Path) -> None:
    """Write the program for a bundle that needs no runtime to `output`; raises LinkError.

    prefix: of the functions of the bundle's library.
    """
    library = bundle / target.platform.library
    options = ["-include", str(bundle / header.FILENAME), f"-DP={prefix}"]
    if loader := foreign.loader_of(target):
        options += foreign.prepare(library, prefix, target, output.parent)
        dynamic.link([STANDALONE_DRIVER, loader], options, [], output, target)
        return
    if not _static(target):
        dynamic.link([STANDALONE_DRIVER], options, [library], output, target)
        return
    zig.compile_with_zig(
        *("-O1", *options, "-static", "-o", str(output), str(STANDALONE_DRIVER), str(library)),
        "-lm",
        triple=target.platform.linker,
    )


def warm_up(target: Target, flavour: Flavour) -> None:
    """Build zig's libraries for static programs that run bundles of this backend into the shared
    cache, so that no build waits for them; raises LinkError.
    """
    if _static(target):
        with_runtime = flavour is Flavour.VM
        zig.warm_up_program(
            target.platform.linker,
            language="c++" if with_runtime else "cc",
            arguments=("-O1", "-static", *([] if with_runtime else ["-lm"])),
        )


def _static(target: Target) -> bool:
    return target.platform.runtime is Runtime.LINKED and not target.platform.unseen


def _with_libraries(bundle: Path, include: list[str], target: Target, output: Path) -> None:
    """TVM's function interface comes from a wheel, since a loader has it from Python; the runtime
    from the bundle. An emulated PC runs one thread.
    """
    alone = emulator.runs_on_pc(target)
    threads = [bundle / THREADS] if (bundle / THREADS).is_file() and not alone else []
    options = [*include, *_options_of_device(target)]
    options += [f"-DRELAXD_THREADS={THREAD_COUNT}"] if threads else []
    archives = [bundle / target.platform.library] if target.platform.archived else []
    options += _options_of_header(bundle) if archives else []
    runtime = opencl.runtime_of(target) if archives else sorted(bundle.glob("libtvm_runtime*.so"))
    libraries = [*threads, interface_of(target), *runtime]
    dynamic.link([DRIVER], options, libraries, output, target, archives)


def _options_of_device(target: Target) -> list[str]:
    if target.device is None:
        return []
    return [f"-DRELAXD_DEVICE={opencl.NUMBER}", f'-DRELAXD_FAILURE="{opencl.FAILURE}"']


def interface_of(target: Target) -> Path:
    """The library of TVM's function interface for the target's processor; raises LinkError."""
    if target.platform == resolve(NATIVE).platform:
        return folder_of("tvm_ffi") / "lib" / _INTERFACE
    platform = target.platform if target.device is None else opencl.host_of(target).platform
    return runtimes.find(platform) / _INTERFACE


def _with_archive(bundle: Path, target: Target) -> list[str]:
    return [
        "-static",
        *_options_of_header(bundle),
        "-Wl,--whole-archive",
        str(bundle / target.platform.library),
        str(archives.path_of(target.platform)),
        "-Wl,--no-whole-archive",
    ]


def _options_of_header(bundle: Path) -> list[str]:
    """The driver opens the archive by the function of its header."""
    opener = header.opener_of(bundle / header.FILENAME)
    return [f"-I{bundle}", "-include", header.FILENAME, f"-DRELAXD_OPEN={opener}"]
