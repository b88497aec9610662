"""The canonical form of TVM's objects: equal bytes for what is structurally equal, whatever its
variables are called; written by a library of ours, built with zig.
"""

import ctypes
import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from compiler.targets import resolve
from compiler.toolchain import build
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
    "-shared",
    "-Wl,-S",
    "-Wl,--build-id=none",
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
    version = metadata.version("apache-tvm-ffi")
    headers = folder_of("tvm_ffi") / "include"
    flags = (*_FLAGS, f'-DTVM_FFI_VERSION="{version}"')
    host = resolve("native").platform
    return build.library(_SOURCE, "canonical.so", flags, [f"-I{headers}"], host.linker)


@cache
def _loaded(path: Path) -> tuple[ctypes.CDLL, Any]:
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
    ours, interface = _loaded(library)
    size = ctypes.c_size_t()
    content = ours.relaxd_canonical(interface, subject.__chandle__(), ctypes.byref(size))
    if content is None:
        return None
    try:
        return ctypes.string_at(content, size.value)
    finally:
        ours.relaxd_canonical_free(content)
