"""Runtimes of devices that TVM's wheels leave out, built from our source with zig: OpenCL's."""

from pathlib import Path

from compiler.runtimes import archives
from compiler.targets import Target
from compiler.toolchain import build

OPENCL = "libtvm_runtime_opencl.so"
_SOURCE = Path(__file__).with_name("opencl.cc")
_OWN_SYMBOLS = ("-fvisibility=hidden", "-fvisibility-inlines-hidden", "-Wl,-Bsymbolic")
"""What TVM's libraries define too is taken from here: an error thrown by their C++ library is none
to ours.
"""

_FLAGS = (
    *("-std=c++20", "-O2", "-g0", "-fPIC", "-w", "-shared", "-DTVM_FFI_USE_LIBBACKTRACE=0"),
    *("-Wl,-S", "-Wl,--build-id=none"),
    *_OWN_SYMBOLS,
)


def opencl(target: Target) -> Path:
    """The OpenCL runtime for the target's host, built into the compiler's cache at the first call;
    raises LinkError.

    The build takes seconds, or a minute or two if zig has to build its C++ library first.
    """
    return build.library(
        _SOURCE, OPENCL, _FLAGS, _includes(), target.platform.linker, headers=archives.SUPPORT
    )


def _includes() -> list[str]:
    """Options for the folders of headers, and for leaving their paths out of what is built."""
    headers = archives.include_folders()
    folders = (*headers, headers[0].parent / "src" / "runtime", archives.SUPPORT)
    return [f"-I{path}" for path in folders] + [f"-ffile-prefix-map={path}=." for path in folders]
