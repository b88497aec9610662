"""The canonical form of TVM's objects: equal bytes for what is structurally equal, whatever its
variables are called; written by a library of ours, built with zig.
"""

import ctypes
import hashlib
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from compiler.runtimes import linux
from compiler.targets import Target, resolve
from compiler.toolchain import build, zig
from compiler.toolchain.packages import folder_of

_SOURCE = Path(__file__).with_name("canonical.c")
_FLAGS = (
    "-std=c17",
    "-O2",
    "-g0",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-Werror",
)
_INTERFACE = (
    "TVMFFIGetTypeInfo",
    "TVMFFIObjectDecRef",
    "TVMFFIBigIntGetContentByteArray",
    "TVMFFIFunctionGetGlobal",
    "TVMFFIFunctionCall",
)
"""Functions of TVM's in the order in which the library takes them."""


def library() -> Path:
    """The library for this machine, built at first into the compiler's cache; raises LinkError."""
    version, host = metadata.version("apache-tvm-ffi"), resolve("native")
    flags = (*_FLAGS, f'-DTVM_FFI_VERSION="{version}"')
    recipe = build.digest_of((flags, linux.recipe(host)), _SOURCE)
    folder = Path("canonical", f"{host.platform.linker}-{recipe}")
    return build.build_once(folder / "canonical.so", partial(_build, flags, host))


def _build(flags: tuple[str, ...], host: Target, output: Path) -> None:
    compiled, headers = output.with_suffix(".o"), folder_of("tvm_ffi") / "include"
    zig.compile_with_zig(
        *(*flags, f"-I{headers}", "-c", "-o", str(compiled), str(_SOURCE)),
        triple=host.platform.linker,
    )
    linux.link([compiled], output, host)


@cache
def _load(path: Path) -> tuple[ctypes.CDLL, Any]:
    """The library, and the functions of TVM's that it calls."""
    tvm = folder_of("tvm_ffi") / "lib" / "libtvm_ffi.so"
    ours, theirs = ctypes.CDLL(str(path)), ctypes.CDLL(str(tvm))
    ours.relaxd_canonical.restype = ctypes.c_void_p
    ours.relaxd_canonical.argtypes = [ctypes.c_void_p] * 3
    ours.relaxd_canonical_free.argtypes = [ctypes.c_void_p]
    addresses = [ctypes.cast(getattr(theirs, name), ctypes.c_void_p).value for name in _INTERFACE]
    return ours, (ctypes.c_void_p * len(addresses))(*addresses)


def digest(subject: Any, library: Path) -> bytes | None:
    """sha256 of the canonical form of an object; None for one that has no such form."""
    form = form_of(subject, library)
    return None if form is None else hashlib.sha256(form).digest()


def form_of(subject: Any, library: Path) -> bytes | None:
    """The canonical form, None where the object holds what structural equality does not know."""
    ours, interface = _load(library)
    size = ctypes.c_size_t()
    content = ours.relaxd_canonical(interface, subject.__chandle__(), ctypes.byref(size))
    if content is None:
        return None
    try:
        return ctypes.string_at(content, size.value)
    finally:
        ours.relaxd_canonical_free(content)
